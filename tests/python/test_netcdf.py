"""`ups data` against netCDF4-python and scipy: every format, storage form and attribute of CF packing, bit for bit; how dimensions are
recognised; bad files; and a training run on a NetCDF task."""

import json
import os
import re
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest

from commands import dump, inspect, must, one_sentence, same, ups
from tiny_run import CONFIG


CLASSIC = ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]
FORMATS = CLASSIC + ["NETCDF4", "NETCDF4_CLASSIC"]


def ways(fmt):
    """How files of a format are read: NetCDF-4 is HDF5, whose library reads it too."""
    return ["threads"] if fmt in CLASSIC else ["threads", "library"]


def same_but_nan(found, expected):
    """Equal bits, but for NaN, which has many."""
    if not isinstance(found, np.ndarray) or found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    nan = np.isnan(expected)
    return np.array_equal(np.isnan(found), nan) and found[~nan].tobytes() == expected[~nan].tobytes()


def smooth(shape, seed, dtype="f4"):
    rng = np.random.default_rng(seed)
    u = np.sin(np.arange(np.prod(shape)) * 0.1).reshape(shape) * 8 + rng.standard_normal(shape)
    if np.dtype(dtype).kind in "iu":
        return (u + 20).astype(dtype)
    return u.astype(dtype)


def write(path, fmt, variables, dimensions, *, unlimited="time", attributes={}, **keywords):
    """`variables`: name → array over `dimensions`; `attributes`: name → attributes of it."""
    first = next(iter(variables.values()))
    with netCDF4.Dataset(path, "w", format=fmt) as f:
        for name, length in zip(dimensions, first.shape):
            f.createDimension(name, None if name == unlimited else length)
        for name, values in variables.items():
            extra = dict(keywords)
            if fmt in CLASSIC:
                for key in ("zlib", "shuffle", "chunksizes", "fletcher32", "endian", "contiguous"):
                    extra.pop(key, None)
            if unlimited in dimensions:
                extra.pop("contiguous", None)
            own = dict(attributes.get(name, {}))
            fill = own.pop("_FillValue", None)
            dtype = values.dtype.newbyteorder({"big": ">", "little": "<"}[extra["endian"]]) if "endian" in extra else values.dtype
            variable = f.createVariable(name, dtype, dimensions, fill_value=fill, **extra)
            variable.setncatts(own)
            variable.set_auto_maskandscale(False)
            variable[:] = values


def expect(path, names, dtype=None):
    """(time, channel, …) as netCDF4-python reads it, NaN where it masks; in the type that UPS decodes to."""
    with netCDF4.Dataset(path) as f:
        fields, wide = [], False
        for name in names:
            stored = f[name].dtype
            wide |= stored.itemsize > 4 or (stored.kind in "iu" and stored.itemsize > 2)
            values = f[name][:]
            fields.append(np.ma.filled(values.astype("f4" if values.dtype == "f4" else "f8"), np.nan))
        dtype = dtype or ("f8" if wide else "f4")
        return np.ascontiguousarray(np.stack([field.astype(dtype) for field in fields], axis=1))


def check(path, names, by):
    expected = expect(path, names)
    for way in by:
        assert same_but_nan(dump(path, 0, way), expected)


# ---- storage --------------------------------------------------------------------------------------------------------

STORAGE = {
    "as netCDF chooses": {},
    "contiguous": {"contiguous": True},
    "odd chunks, zlib + shuffle": {"chunksizes": "odd", "zlib": True, "shuffle": True},
    "odd chunks, zlib + shuffle + Fletcher-32, big-endian": {"chunksizes": "odd", "zlib": True, "shuffle": True, "fletcher32": True, "endian": "big"},
    "little-endian": {"endian": "little"},
    "big-endian": {"endian": "big"},
}
GRIDS = {1: ("x",), 2: ("y", "x"), 3: ("lev", "lat", "lon")}


# Other forms are those of HDF5, which test_sources.py knows by itself.
@pytest.mark.parametrize("fmt, dims, storage", [(fmt, dims, storage) for fmt in FORMATS for dims in GRIDS for storage in STORAGE
                                                if storage == "as netCDF chooses" or fmt == "NETCDF4" and dims > 1])
@pytest.mark.parametrize("unlimited", ["time", None])
def test_every_format_and_storage_form_equals_netcdf4_python(scratch, fmt, dims, storage, unlimited):
    path, shape, keywords = os.path.join(scratch, "storage.nc"), (6, *(5, 9, 3)[:dims]), dict(STORAGE[storage])
    if keywords.get("chunksizes"):
        keywords["chunksizes"] = tuple(max(1, min(n, 5 if i % 2 else 4)) for i, n in enumerate(shape))
    write(path, fmt, {"u": smooth(shape, 1), "v": smooth(shape, 2)}, ("time", *GRIDS[dims]), unlimited=unlimited, **keywords)
    check(path, ["u", "v"], ways(fmt) if dims == 2 and unlimited else ["threads"])


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_type_equals_netcdf4_python(scratch, fmt):
    """Of each type that becomes float32, and of each that becomes float64, one variable in a file; and alone in it the
    types whose records are padded, unless they are alone."""
    path = os.path.join(scratch, "types.nc")
    more = fmt in ("NETCDF3_64BIT_DATA", "NETCDF4")
    for names in (["i1", "i2", "f4"] + ["u1", "u2"] * more, ["i4", "f8"] + ["u4", "i8", "u8"] * more, ["i1"], ["i2"]):
        write(path, fmt, {dtype: smooth((5, 7), 3, dtype) for dtype in names}, ("time", "x"), zlib=True)
        check(path, names, ways(fmt))


@pytest.mark.parametrize("fmt", FORMATS)
def test_record_variables_of_bytes_shorts_and_floats_are_read_with_their_padding(scratch, fmt):
    path = os.path.join(scratch, "records.nc")
    shape = (9, 3, 7)
    with netCDF4.Dataset(path, "w", format=fmt) as f:
        f.createDimension("time", None)
        for name, length in zip("yx", shape[1:]):
            f.createDimension(name, length)
        f.createVariable("time", "f8", ("time",))[:] = np.arange(shape[0]) * 0.25
        for name, dtype in (("a", "i1"), ("b", "f4"), ("c", "i2"), ("d", "f4")):
            variable = f.createVariable(name, dtype, ("time", "y", "x"))
            variable[:] = smooth(shape, ord(name), dtype)
    check(path, ["a", "b", "c", "d"], ways(fmt))


@pytest.mark.parametrize("fmt", CLASSIC)
def test_records_of_classic_files_are_read_without_a_library(scratch, fmt):
    """The library takes a read that comes back short for the end of a classic file: it is never asked."""
    path = os.path.join(scratch, "classic.nc")
    write(path, fmt, {"u": smooth((6, 4), 1), "v": smooth((6, 4), 2)}, ("time", "x"))
    storage = [array["storage"] for array in inspect(path).get("arrays", [])]
    assert storage == ["records", "records"], f"{fmt}: inspect says that records lie between each other's"
    write(path, fmt, {"u": smooth((6, 4), 1)}, ("time", "x"))
    storage = [array["storage"] for array in inspect(path).get("arrays", [])]
    assert storage == ["contiguous"], f"{fmt}: ... and those of one variable alone behind each other"
    refused = dump(path, 0, "library")
    assert (isinstance(refused, str) and "exit 1" in refused and path in refused
            and "by itself" in refused), f"{fmt}: reading by a library is refused in words"


@pytest.mark.parametrize("version", (1, 2))
@pytest.mark.parametrize("unlimited", (True, False))
def test_files_that_scipy_wrote_are_read(scratch, version, unlimited):
    from scipy.io import netcdf_file
    path = os.path.join(scratch, "scipy.nc")
    u, v = smooth((5, 3, 7), 1), smooth((5, 3, 7), 2, "f8")
    with netcdf_file(path, "w", version=version) as f:
        f.createDimension("t", None if unlimited else 5)
        f.createDimension("y", 3)
        f.createDimension("x", 7)
        f.createVariable("u", "f4", ("t", "y", "x"))[:] = u
        f.createVariable("v", "f8", ("t", "y", "x"))[:] = v
    check(path, ["u", "v"], ["threads"])


# ---- CF packing -----------------------------------------------------------------------------------------------------

F4, F8, I2 = np.float32, np.float64, np.int16
PACKINGS = {
    "short, double scale and offset": ("i2", {"scale_factor": F8(0.01), "add_offset": F8(273.15)}),
    "short, float scale and offset": ("i2", {"scale_factor": F4(0.01), "add_offset": F4(273.15)}),
    "short, float scale, double offset": ("i2", {"scale_factor": F4(0.01), "add_offset": F8(273.15)}),
    "short, double scale, float offset": ("i2", {"scale_factor": F8(0.01), "add_offset": F4(273.15)}),
    "short, scale only": ("i2", {"scale_factor": F8(1 / 3)}),
    "short, offset only": ("i2", {"add_offset": F4(0.1)}),
    "short, fill value": ("i2", {"_FillValue": I2(21)}),
    "short, missing_value": ("i2", {"missing_value": I2(21)}),
    "short, three missing_values": ("i2", {"missing_value": np.array([19, 21, 25], "i2")}),
    "short, fill and missing_value, scaled": ("i2", {"_FillValue": I2(18), "missing_value": I2(21), "scale_factor": F8(0.1)}),
    "short, valid_range": ("i2", {"valid_range": np.array([15, 25], "i2")}),
    "short, valid_min": ("i2", {"valid_min": I2(15)}),
    "short, valid_max, scaled": ("i2", {"valid_max": I2(25), "scale_factor": F4(2.5)}),
    "byte, scale and fill": ("i1", {"_FillValue": np.int8(20), "scale_factor": F4(0.1)}),
    "int, scale and fill": ("i4", {"_FillValue": np.int32(20), "scale_factor": F8(0.001)}),
    "int, float scale": ("i4", {"scale_factor": F4(0.1), "add_offset": F4(0.7)}),
    "float, fill value": ("f4", {"_FillValue": F4(-9999)}),
    "float, fill value NaN": ("f4", {"_FillValue": F4(np.nan)}),
    "float, missing_value": ("f4", {"missing_value": F4(1e20)}),
    "float, float scale and offset": ("f4", {"scale_factor": F4(0.1), "add_offset": F4(3)}),
    "float, valid_range": ("f4", {"valid_range": np.array([-5, 5], "f4")}),
    "double, fill value, scale and offset": ("f8", {"_FillValue": F8(-1), "scale_factor": F8(0.1), "add_offset": F8(1 / 3)}),
}


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("decoded", ("f4", "f8"))
def test_missing_values_are_nan_and_the_rest_equals_netcdf4_python(scratch, fmt, decoded):
    """A file holds all variables that are decoded to one type, each with its attributes."""
    path = os.path.join(scratch, "packed.nc")
    variables, attributes = {}, {}
    for i, (dtype, own) in enumerate(PACKINGS.values()):
        if (dtype in ("i4", "f8")) != (decoded == "f8"):
            continue
        values = smooth((6, 4, 5), 4, dtype)
        for key in ("_FillValue", "missing_value"):
            for j, value in enumerate(np.atleast_1d(own.get(key, []))):
                values.reshape(-1)[7 + j::11] = value
        variables[f"v{i:02}"], attributes[f"v{i:02}"] = values, own
    write(path, fmt, variables, ("time", "y", "x"), attributes=attributes, zlib=True)
    expected = expect(path, list(variables))
    for way in ways(fmt):
        found = dump(path, 0, way)
        for channel, name in enumerate(variables):
            assert same_but_nan(np.ascontiguousarray(found[:, channel]), np.ascontiguousarray(expected[:, channel])), list(PACKINGS)[int(name[1:])]


@pytest.mark.parametrize("fmt", FORMATS)
def test_unsigned_is_honoured(scratch, fmt):
    path = os.path.join(scratch, "unsigned.nc")
    values = smooth((6, 4, 5), 4, "i2")
    values[::2] -= 40
    own = {"_Unsigned": "true", "scale_factor": F8(0.5), "missing_value": I2(-20)}
    write(path, fmt, {"u": values}, ("time", "y", "x"), attributes={"u": own})
    check(path, ["u"], ["threads"])


@pytest.mark.parametrize("fmt", FORMATS)
def test_what_was_never_written_is_nan_in_variables_shorter_than_time_too(scratch, fmt):
    path = os.path.join(scratch, "unwritten.nc")
    with netCDF4.Dataset(path, "w", format=fmt) as f:
        f.createDimension("time", None)
        f.createDimension("x", 5)
        u = f.createVariable("u", "f4", ("time", "x"))
        v = f.createVariable("v", "f4", ("time", "x"), fill_value=F4(-5))
        w = f.createVariable("w", "i2", ("time", "x"))
        u[0:8] = smooth((8, 5), 1)
        v[3] = smooth((5,), 2)
        w[2:5, 1:3] = 7
    check(path, ["u", "v", "w"], ["threads"])


def test_a_variable_that_ends_within_a_chunk_is_left_to_netcdf_c(scratch):
    path = os.path.join(scratch, "unwritten.nc")
    with netCDF4.Dataset(path, "w") as f:
        f.createDimension("time", None)
        f.createDimension("x", 5)
        f.createVariable("u", "f4", ("time", "x"), chunksizes=(3, 5))[0:8] = smooth((8, 5), 1)
        f.createVariable("v", "f4", ("time", "x"), chunksizes=(3, 5))[0:4] = smooth((4, 5), 2)
    found = dump(path)
    if isinstance(found, str) and "which this build is without" in found:
        pytest.skip("this build is without NetCDF-C")
    check(path, ["u", "v"], ["threads"])
    facts = inspect(path)
    assert [a["storage"] for a in facts["arrays"]] == ["chunked", "library"] and "shorter" in facts["arrays"][1]["why_library"]


# ---- recognition ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("fmt", ["NETCDF3_CLASSIC", "NETCDF4"])
@pytest.mark.parametrize("name, attributes, unlimited, seconds", [
    ("step_of_run", {"axis": "T"}, False, 1),
    ("when", {"standard_name": "time"}, False, 1),
    ("when", {"units": "minutes since 2020-01-01 00:00"}, False, 60),
    ("when", {"units": "days"}, False, 86400),
    ("time", {}, False, 1),
    ("t", {"units": "ms"}, False, 1e-3),
    ("n", {}, True, 1)])
def test_time_is_known_by_axis_standard_name_units_name_or_being_unlimited_and_given_in_seconds(scratch, fmt, name, attributes, unlimited, seconds):
    path = os.path.join(scratch, "cf.nc")
    with netCDF4.Dataset(path, "w", format=fmt) as f:
        f.createDimension(name, None if unlimited else 6)
        f.createDimension("eta", 4)
        f.createDimension("xi", 5)
        time = f.createVariable(name, "f8", (name,))
        time.setncatts(attributes)
        time[:] = np.arange(6) * 0.5 + 1
        f.createVariable("zeta", "f4", (name, "eta", "xi"))[:] = smooth((6, 4, 5), 1)
    facts = inspect(path)
    assert facts["time"]["frames"] == 6 and np.allclose(facts["time"]["range"], np.array([1, 3.5]) * seconds)


@pytest.mark.parametrize("fmt", ("NETCDF3_64BIT_OFFSET", "NETCDF4"))
def test_inspect_names_layout_samples_fields_grid_time_parameters_and_what_is_left_out(scratch, fmt):
    path = os.path.join(scratch, "whole.nc")
    shape = (3, 6, 4, 5)
    u, v, h, c = smooth(shape, 1), smooth(shape, 2, "f8"), smooth(shape[2:], 3), smooth((3, 4, 5), 4)
    with netCDF4.Dataset(path, "w", format=fmt) as f:
        for name, length in zip(("member", "time", "lat", "lon"), shape):
            f.createDimension(name, length)
        f.createDimension("other", 17)
        f.createDimension("nv", 2)
        f.createDimension("lev", 1)
        time = f.createVariable("time", "f4", ("time",))
        time.units = "hours since 1999-12-31"
        time[:] = np.arange(6)
        lat = f.createVariable("lat", "f4", ("lat",))
        lat.units, lat.bounds = "degrees_north", "lat_bnds"
        lat[:] = np.linspace(-3, 3, 4)
        f.createVariable("lat_bnds", "f4", ("lat", "nv"))[:] = 0
        f.createVariable("area", "f4", ("lat", "lon"))[:] = 0
        first = f.createVariable("u", "f4", ("member", "time", "lat", "lon"))
        first.cell_measures = "area: area"
        first[:] = u
        f.createVariable("v", "f8", ("member", "time", "lat", "lon"))[:] = v
        f.createVariable("h", "f4", ("lat", "lon"))[:] = h
        f.createVariable("c", "f4", ("member", "lat", "lon"))[:] = c
        f.createVariable("profile", "f4", ("time", "other"))[:] = 1
        f.createVariable("reynolds", "f8", ("member",))[:] = [100, 200, 400]
        f.createVariable("gravity", "f8", ())[...] = 9.81
        f.createVariable("crs", "i4", ())[...] = 7
        f["crs"].grid_mapping_name = "latitude_longitude"
        f.setncattr("viscosity", 0.125)
        f.title = "a test"
    facts = inspect(path)
    assert (facts.get("layout") == "netcdf" and facts["samples"] == 3 and facts["fields"] == ["u", "v", "h", "c"]
            and [(g["axis"], g["points"]) for g in facts["grid"]] == [("lat", 4), ("lon", 5)] and facts["grid"][0]["range"] == [-3, 3]
            and facts["time"] == {"frames": 6, "range": [0.0, 18000.0]}
            and facts["parameters"] == {"reynolds": [100, 400], "gravity": [9.81, 9.81], "viscosity": [0.125, 0.125]}), \
        f"{fmt}: inspect names layout, samples, fields, grid, time and parameters"
    assert "profile" in json.dumps(facts) and "crs" not in json.dumps(facts), f"{fmt}: inspect says what is left out"
    found = dump(path, 2)
    fields = [u[2], v[2], np.broadcast_to(h, u[2].shape), np.broadcast_to(c[2], u[2].shape)]
    expected = np.ascontiguousarray(np.stack([field.astype("f8") for field in fields], axis=1))
    assert same(found, expected), f"{fmt}: sample 2 has its own fields, static ones in every frame, all in float64"


def test_an_hdf5_file_with_dimension_scales_from_h5py_is_read_as_netcdf(scratch):
    """Dimension scales are HDF5's own, and h5py writes texts as variable-length strings."""
    path = os.path.join(scratch, "scales.h5")
    values = smooth((6, 4, 5), 1)
    with h5py.File(path, "w") as f:
        f["seconds"] = np.arange(6) / 2
        f["seconds"].attrs["units"] = "minutes since 2000-01-01"
        f["lat"], f["lon"] = np.arange(4.0), np.arange(5.0)
        f["field"] = values
        for axis, name in enumerate(("seconds", "lat", "lon")):
            f[name].make_scale(name)
            f["field"].dims[axis].attach_scale(f[name])
    facts, found = inspect(path), dump(path)
    assert (facts.get("layout") == "netcdf" and facts["time"]["range"] == [0, 150]
            and [g["axis"] for g in facts["grid"]] == ["lat", "lon"] and same(found, values[:, None])), \
        "an HDF5 file with dimension scales from h5py is read as NetCDF"


def test_a_level_dimension_of_length_1_is_passed_over(scratch):
    path = os.path.join(scratch, "unit.nc")
    values = smooth((6, 1, 4, 5), 1)
    write(path, "NETCDF3_CLASSIC", {"u": values}, ("time", "lev", "y", "x"))
    found = dump(path)
    assert same(found, values), "a level dimension of length 1 is passed over"


# ---- bad files ------------------------------------------------------------------------------------------------------

def refuse(scratch, data, words):
    bad, out = os.path.join(scratch, "bad.nc"), os.path.join(scratch, "bad.npy")
    Path(bad).write_bytes(data)
    for arguments in (("data", "inspect", bad), ("data", "dump", bad, "-o", out)):
        one_sentence(ups(*arguments), "bad.nc", *map(re.escape, words))
        assert not os.path.exists(out)


@pytest.mark.parametrize("fmt", CLASSIC)
def test_a_damaged_classic_file_is_told(scratch, fmt):
    path = os.path.join(scratch, "good.nc")
    write(path, fmt, {"u": smooth((6, 4, 50), 1), "v": smooth((6, 4, 50), 2)}, ("time", "y", "x"))
    good = Path(path).read_bytes()
    refuse(scratch, good[:90], ["header", "cut short"])
    refuse(scratch, good[:-700], ["beyond the end", "cut short"])
    wide = fmt == "NETCDF3_64BIT_DATA"
    at = 12 + (8 if wide else 4) - 4
    count = b"\x7f" + b"\xff" * 6 if wide else b"\x7f\xff\xff"
    refuse(scratch, good[:at] + count + good[at + len(count):], ["NetCDF header"])  # an absurd number of dimensions
    records = (b"\x00" + b"\x7f" * 7) if wide else b"\x7f" * 4
    refuse(scratch, good[:4] + records + good[4 + len(records):], ["more values than memory" if wide else "beyond the end"])
    refuse(scratch, b"CDF\x03" + good[4:], ["format that UPS knows"])
    refuse(scratch, b"CDF\x01" + bytes(200), ["no variable"])
    refuse(scratch, b"CDX\x01" + good[4:], ["not an HDF5 file"])


def dimensions(f, **lengths):
    for name, length in lengths.items():
        f.createDimension(name, length)


def missing_time(f):
    dimensions(f, time=4, x=5)
    f.createVariable("u", "f4", ("time", "x"))[:] = 1
    f.createVariable("time", "f8", ("time",))[:2] = 1


@pytest.mark.parametrize("fmt", ["NETCDF3_CLASSIC", "NETCDF4"])
@pytest.mark.parametrize("make, words", [
    (lambda f: f.setncattr("title", "empty"), ["no variable"]),
    (lambda f: (dimensions(f, y=4, x=5), f.createVariable("u", "f4", ("y", "x")).__setitem__(slice(None), 1)), ["time", "u (y, x)"]),
    (lambda f: (dimensions(f, x=5, time=4), f.createVariable("u", "f4", ("x", "time")).__setitem__(slice(None), 1)), ["u (x, time)", "ncpdq"]),
    (lambda f: (dimensions(f, time=None, x=5), f.createVariable("u", "f4", ("time", "x"))), ["length 0", "time"]),
    (missing_time, ["coordinate 'time'", "entry 2"])])
def test_a_file_without_what_a_trajectory_needs_is_told(scratch, fmt, make, words):
    path = os.path.join(scratch, "good.nc")
    with netCDF4.Dataset(path, "w", format=fmt) as f:
        make(f)
    refuse(scratch, Path(path).read_bytes(), words)


# ---- training -------------------------------------------------------------------------------------------------------

TRAINING = (re.sub("  - name: darcy\n.*\n.*\n", "", CONFIG).replace("[advection.h5]", "[slow.nc, fast.nc]").replace("steps: 60", "steps: 20"))


def test_two_netcdf_files_are_trained_on(scratch):
    """A task of two NetCDF files, one classic and one NetCDF-4, from the configuration to a checkpoint."""
    rng = np.random.default_rng(7)
    x = np.arange(64) / 64
    for name, fmt, speed in (("slow.nc", "NETCDF3_64BIT_OFFSET", 0.1), ("fast.nc", "NETCDF4", 0.4)):
        phase = rng.random((8, 1, 1))
        u = np.sin(2 * np.pi * (x - speed * np.arange(9)[None, :, None] / 8 - phase)).astype("f4")
        with netCDF4.Dataset(os.path.join(scratch, name), "w", format=fmt) as f:
            for dimension, length in zip(("sample", "time", "x"), u.shape):
                f.createDimension(dimension, length)
            f.createVariable("time", "f8", ("time",))[:] = np.arange(9) / 8
            f.createVariable("x", "f8", ("x",))[:] = x
            f.createVariable("u", "f4", ("sample", "time", "x"))[:] = u
            f.speed = speed
    config = os.path.join(scratch, "run.yaml")
    Path(config).write_text(TRAINING.format(data=scratch, output=os.path.join(scratch, "run")))
    for arguments in (("config", "check", config), ("train", config, "--stage", "autoencoder"), ("cache", "build", config),
                      ("train", config, "--stage", "operator"), ("eval", config)):
        must(*arguments)
