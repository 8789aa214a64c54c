#!/usr/bin/env python3
"""`ups data` against netCDF4-python and scipy: every format, storage form and attribute of CF packing, bit for bit; how
dimensions are recognised; bad files; and a training run on a NetCDF task.

  test_netcdf.py UPS        UPS is the `ups` binary
Prints one line a claim; exit code 1 when one fails.
"""
import json
import os
import subprocess
import sys
import tempfile

import h5py
import netCDF4
import numpy as np

from skipping import skipped
from tiny_run import PATIENCE

UPS = sys.argv[1]
CLASSIC = ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]
FORMATS = CLASSIC + ["NETCDF4", "NETCDF4_CLASSIC"]
failures = 0


def claim(text, held, detail=""):
    global failures
    failures += not held
    print(("ok    " if held else "FAILS ") + text + (f": {detail}" if detail and not held else ""), flush=True)


def ups(*arguments):
    return subprocess.run([UPS, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)


def dump(path, sample=0, way="threads"):
    out = path + ".npy"
    if os.path.exists(out):
        os.remove(out)
    done = ups("data", "dump", path, "--sample", sample, "--io", way, "-o", out)
    return np.load(out) if done.returncode == 0 else f"exit {done.returncode}: {done.stderr.strip()}"


def inspect(path):
    done = ups("data", "inspect", "--json", path)
    return json.loads(done.stdout)[0] if done.returncode == 0 else {"error": done.stderr}


def ways(fmt):
    """How files of a format are read: NetCDF-4 is HDF5, whose library reads it too."""
    return ["threads"] if fmt in CLASSIC else ["threads", "library"]


def same(found, expected):
    """Equal bits, but for NaN, which has many."""
    if not isinstance(found, np.ndarray) or found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    nan = np.isnan(expected)
    return np.array_equal(np.isnan(found), nan) and found[~nan].tobytes() == expected[~nan].tobytes()


def describe(found, expected):
    if isinstance(found, str):
        return found
    differing = np.flatnonzero((found != expected) & ~(np.isnan(found) & np.isnan(expected))) if found.shape == expected.shape else []
    return f"{found.dtype} {found.shape} for {expected.dtype} {expected.shape}; {len(differing)} values differ"


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


def check(text, path, names, by):
    expected = expect(path, names)
    wrong = {}
    for way in by:
        found = dump(path, 0, way)
        if not same(found, expected):
            wrong[way] = describe(found, expected)
    claim(f"{text}: equals netCDF4-python by {', '.join(by)}", not wrong, wrong)


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


def check_storage(scratch):
    path = os.path.join(scratch, "storage.nc")
    for fmt in FORMATS:
        for dims, grid in GRIDS.items():
            shape = (6, *(5, 9, 3)[:dims])
            for unlimited in ("time", None):
                for storage, keywords in STORAGE.items():
                    if storage != "as netCDF chooses" and (fmt != "NETCDF4" or dims == 1):
                        continue # forms of HDF5, which test_sources.py knows by itself
                    keywords = dict(keywords)
                    if keywords.get("chunksizes"):
                        keywords["chunksizes"] = tuple(max(1, min(n, 5 if i % 2 else 4)) for i, n in enumerate(shape))
                    write(path, fmt, {"u": smooth(shape, 1), "v": smooth(shape, 2)}, ("time", *grid), unlimited=unlimited, **keywords)
                    check(f"{fmt}, {dims}D, {'unlimited' if unlimited else 'fixed'} time, {storage}", path, ["u", "v"],
                          ways(fmt) if dims == 2 and unlimited else ["threads"])


def check_types(scratch):
    """Of each type that becomes float32, and of each that becomes float64, one variable in a file; and alone in it the
    types whose records are padded, unless they are alone."""
    path = os.path.join(scratch, "types.nc")
    for fmt in FORMATS:
        more = fmt in ("NETCDF3_64BIT_DATA", "NETCDF4")
        for names in (["i1", "i2", "f4"] + ["u1", "u2"] * more, ["i4", "f8"] + ["u4", "i8", "u8"] * more, ["i1"], ["i2"]):
            write(path, fmt, {dtype: smooth((5, 7), 3, dtype) for dtype in names}, ("time", "x"), zlib=True)
            check(f"{fmt}: records of {', '.join(names)}", path, names, ways(fmt))


def check_records(scratch):
    path = os.path.join(scratch, "records.nc")
    for fmt in FORMATS:
        shape = (9, 3, 7)
        with netCDF4.Dataset(path, "w", format=fmt) as f:
            f.createDimension("time", None)
            for name, length in zip("yx", shape[1:]):
                f.createDimension(name, length)
            f.createVariable("time", "f8", ("time",))[:] = np.arange(shape[0]) * 0.25
            for name, dtype in (("a", "i1"), ("b", "f4"), ("c", "i2"), ("d", "f4")):
                variable = f.createVariable(name, dtype, ("time", "y", "x"))
                variable[:] = smooth(shape, ord(name), dtype)
        check(f"{fmt}: four record variables of bytes, shorts and floats, with their padding", path, ["a", "b", "c", "d"], ways(fmt))


def check_records_are_extents(scratch):
    """The library takes a read that comes back short for the end of a classic file: it is never asked."""
    path = os.path.join(scratch, "classic.nc")
    for fmt in CLASSIC:
        write(path, fmt, {"u": smooth((6, 4), 1), "v": smooth((6, 4), 2)}, ("time", "x"))
        storage = [array["storage"] for array in inspect(path).get("arrays", [])]
        claim(f"{fmt}: inspect says that records lie between each other's", storage == ["records", "records"], storage)
        write(path, fmt, {"u": smooth((6, 4), 1)}, ("time", "x"))
        storage = [array["storage"] for array in inspect(path).get("arrays", [])]
        claim(f"{fmt}: ... and those of one variable alone behind each other", storage == ["contiguous"], storage)
        refused = dump(path, 0, "library")
        claim(f"{fmt}: reading by a library is refused in words", isinstance(refused, str) and "exit 1" in refused and path in refused
              and "by itself" in refused, refused)


def check_scipy(scratch):
    from scipy.io import netcdf_file
    path = os.path.join(scratch, "scipy.nc")
    for version in (1, 2):
        for unlimited in (True, False):
            u, v = smooth((5, 3, 7), 1), smooth((5, 3, 7), 2, "f8")
            with netcdf_file(path, "w", version=version) as f:
                f.createDimension("t", None if unlimited else 5)
                f.createDimension("y", 3)
                f.createDimension("x", 7)
                f.createVariable("u", "f4", ("t", "y", "x"))[:] = u
                f.createVariable("v", "f8", ("t", "y", "x"))[:] = v
            check(f"scipy's version {version}, {'unlimited' if unlimited else 'fixed'} time, float32 beside float64", path, ["u", "v"], ["threads"])


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


def check_packing(scratch):
    """A file holds all variables that are decoded to one type, each with its attributes."""
    path = os.path.join(scratch, "packed.nc")
    for fmt in FORMATS:
        for decoded in ("f4", "f8"):
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
                found, wrong = dump(path, 0, way), {}
                for channel, name in enumerate(variables):
                    ours = found if isinstance(found, str) else np.ascontiguousarray(found[:, channel])
                    if not same(ours, np.ascontiguousarray(expected[:, channel])):
                        wrong[list(PACKINGS)[int(name[1:])]] = describe(ours, expected[:, channel])
                claim(f"{fmt}, by {way}: missing values are NaN and the rest equals netCDF4-python for {len(variables)} kinds of packing to {decoded}",
                      not wrong, wrong)


def check_unsigned(scratch):
    path = os.path.join(scratch, "unsigned.nc")
    for fmt in FORMATS:
        values = smooth((6, 4, 5), 4, "i2")
        values[::2] -= 40
        own = {"_Unsigned": "true", "scale_factor": F8(0.5), "missing_value": I2(-20)}
        write(path, fmt, {"u": values}, ("time", "y", "x"), attributes={"u": own})
        check(f"{fmt}: short with _Unsigned", path, ["u"], ["threads"])


def check_unwritten(scratch):
    path = os.path.join(scratch, "unwritten.nc")
    for fmt in FORMATS:
        with netCDF4.Dataset(path, "w", format=fmt) as f:
            f.createDimension("time", None)
            f.createDimension("x", 5)
            u = f.createVariable("u", "f4", ("time", "x"))
            v = f.createVariable("v", "f4", ("time", "x"), fill_value=F4(-5))
            w = f.createVariable("w", "i2", ("time", "x"))
            u[0:8] = smooth((8, 5), 1)
            v[3] = smooth((5,), 2)
            w[2:5, 1:3] = 7
        check(f"{fmt}: what was never written is NaN, in variables shorter than time too", path, ["u", "v", "w"], ["threads"])
    with netCDF4.Dataset(path, "w") as f:
        f.createDimension("time", None)
        f.createDimension("x", 5)
        f.createVariable("u", "f4", ("time", "x"), chunksizes=(3, 5))[0:8] = smooth((8, 5), 1)
        f.createVariable("v", "f4", ("time", "x"), chunksizes=(3, 5))[0:4] = smooth((4, 5), 2)
    found = dump(path)
    if isinstance(found, str) and "which this build is without" in found:
        skipped("a variable that ends within a chunk", "this build is without NetCDF-C")
        return
    check("a variable that ends within a chunk is left to NetCDF-C", path, ["u", "v"], ["threads"])
    facts = inspect(path)
    claim("... and inspect says so", [a["storage"] for a in facts["arrays"]] == ["chunked", "library"] and "shorter" in facts["arrays"][1]["why_library"], facts)


# ---- recognition ----------------------------------------------------------------------------------------------------

def check_recognition(scratch):
    path = os.path.join(scratch, "cf.nc")
    cases = {
        "axis = T": ("step_of_run", {"axis": "T"}, False, 1),
        "standard_name": ("when", {"standard_name": "time"}, False, 1),
        "units 'minutes since'": ("when", {"units": "minutes since 2020-01-01 00:00"}, False, 60),
        "units 'days'": ("when", {"units": "days"}, False, 86400),
        "the name 'time'": ("time", {}, False, 1),
        "the name 't' and units 'ms'": ("t", {"units": "ms"}, False, 1e-3),
        "being the unlimited dimension": ("n", {}, True, 1),
    }
    for text, (name, attributes, unlimited, seconds) in cases.items():
        wrong = {}
        for fmt in ("NETCDF3_CLASSIC", "NETCDF4"):
            with netCDF4.Dataset(path, "w", format=fmt) as f:
                f.createDimension(name, None if unlimited else 6)
                f.createDimension("eta", 4)
                f.createDimension("xi", 5)
                time = f.createVariable(name, "f8", (name,))
                time.setncatts(attributes)
                time[:] = np.arange(6) * 0.5 + 1
                f.createVariable("zeta", "f4", (name, "eta", "xi"))[:] = smooth((6, 4, 5), 1)
            facts = inspect(path)
            if facts.get("time", {}).get("frames") != 6 or not np.allclose(facts["time"]["range"], np.array([1, 3.5]) * seconds):
                wrong[fmt] = facts
        claim(f"time is known by {text}, and given in seconds", not wrong, wrong)


def check_inspect(scratch):
    path = os.path.join(scratch, "whole.nc")
    shape = (3, 6, 4, 5)
    for fmt in ("NETCDF3_64BIT_OFFSET", "NETCDF4"):
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
        claim(f"{fmt}: inspect names layout, samples, fields, grid, time and parameters",
              facts.get("layout") == "netcdf" and facts["samples"] == 3 and facts["fields"] == ["u", "v", "h", "c"]
              and [(g["axis"], g["points"]) for g in facts["grid"]] == [("lat", 4), ("lon", 5)] and facts["grid"][0]["range"] == [-3, 3]
              and facts["time"] == {"frames": 6, "range": [0.0, 18000.0]}
              and facts["parameters"] == {"reynolds": [100, 400], "gravity": [9.81, 9.81], "viscosity": [0.125, 0.125]}, facts)
        claim(f"{fmt}: inspect says what is left out", "profile" in json.dumps(facts) and "crs" not in json.dumps(facts), facts)
        found = dump(path, 2)
        fields = [u[2], v[2], np.broadcast_to(h, u[2].shape), np.broadcast_to(c[2], u[2].shape)]
        expected = np.ascontiguousarray(np.stack([field.astype("f8") for field in fields], axis=1))
        claim(f"{fmt}: sample 2 has its own fields, static ones in every frame, all in float64", same(found, expected), describe(found, expected))


def check_h5py(scratch):
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
    claim("an HDF5 file with dimension scales from h5py is read as NetCDF", facts.get("layout") == "netcdf" and facts["time"]["range"] == [0, 150]
          and [g["axis"] for g in facts["grid"]] == ["lat", "lon"] and same(found, values[:, None]), facts)


def check_unit_axes(scratch):
    path = os.path.join(scratch, "unit.nc")
    values = smooth((6, 1, 4, 5), 1)
    write(path, "NETCDF3_CLASSIC", {"u": values}, ("time", "lev", "y", "x"))
    found = dump(path)
    claim("a level dimension of length 1 is passed over", same(found, values), describe(found, values))


# ---- bad files ------------------------------------------------------------------------------------------------------

def check_bad_files(scratch):
    path = os.path.join(scratch, "good.nc")
    bad = os.path.join(scratch, "bad.nc")
    out = os.path.join(scratch, "bad.npy")

    def refuse(text, data, words):
        with open(bad, "wb") as f:
            f.write(data)
        for arguments in (("data", "inspect", bad), ("data", "dump", bad, "-o", out)):
            done = ups(*arguments)
            message = done.stderr.strip()
            claim(f"{text}: {arguments[1]} says so ({message[-90:]})", done.returncode == 1 and message.startswith("ups: ") and "\n" not in message
                  and "bad.nc" in message and all(word in message for word in words) and not os.path.exists(out), f"exit {done.returncode}: {message}")

    for fmt in CLASSIC:
        write(path, fmt, {"u": smooth((6, 4, 50), 1), "v": smooth((6, 4, 50), 2)}, ("time", "y", "x"))
        good = open(path, "rb").read()
        refuse(f"{fmt}, header cut short", good[:90], ["header", "cut short"])
        refuse(f"{fmt}, data cut short", good[:-700], ["beyond the end", "cut short"])
        wide = fmt == "NETCDF3_64BIT_DATA"
        at = 12 + (8 if wide else 4) - 4
        count = b"\x7f" + b"\xff" * 6 if wide else b"\x7f\xff\xff"
        refuse(f"{fmt}, an absurd number of dimensions", good[:at] + count + good[at + len(count):], ["NetCDF header"])
        records = (b"\x00" + b"\x7f" * 7) if wide else b"\x7f" * 4
        refuse(f"{fmt}, an absurd number of records", good[:4] + records + good[4 + len(records):],
               ["more values than memory" if wide else "beyond the end"])
    refuse("an unknown version", b"CDF\x03" + good[4:], ["format that UPS knows"])
    refuse("magic and zeros", b"CDF\x01" + bytes(200), ["no variable"])
    refuse("another magic", b"CDX\x01" + good[4:], ["not an HDF5 file"])

    def write_and_refuse(text, make, words):
        for fmt in ("NETCDF3_CLASSIC", "NETCDF4"):
            with netCDF4.Dataset(path, "w", format=fmt) as f:
                make(f)
            refuse(f"{fmt}, {text}", open(path, "rb").read(), words)

    def dimensions(f, **lengths):
        for name, length in lengths.items():
            f.createDimension(name, length)

    write_and_refuse("no variables", lambda f: f.setncattr("title", "empty"), ["no variable"])
    write_and_refuse("no time", lambda f: (dimensions(f, y=4, x=5), f.createVariable("u", "f4", ("y", "x")).__setitem__(slice(None), 1)),
                     ["time", "u (y, x)"])
    write_and_refuse("time last", lambda f: (dimensions(f, x=5, time=4), f.createVariable("u", "f4", ("x", "time")).__setitem__(slice(None), 1)),
                     ["u (x, time)", "ncpdq"])
    write_and_refuse("no frames", lambda f: (dimensions(f, time=None, x=5), f.createVariable("u", "f4", ("time", "x"))), ["length 0", "time"])

    def missing_time(f):
        dimensions(f, time=4, x=5)
        f.createVariable("u", "f4", ("time", "x"))[:] = 1
        f.createVariable("time", "f8", ("time",))[:2] = 1

    write_and_refuse("times never written", missing_time, ["coordinate 'time'", "entry 2"])


# ---- training -------------------------------------------------------------------------------------------------------

def check_training(scratch):
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
    with open(config, "w") as f:
        f.write(TRAINING.format(root=scratch, out=os.path.join(scratch, "run")))
    for arguments in (("config", "check", config), ("train", config, "--stage", "autoencoder"), ("cache", "build", config),
                      ("train", config, "--stage", "operator"), ("eval", config)):
        done = ups(*arguments)
        claim(f"on two NetCDF files, ups {' '.join(map(str, arguments[:2])).replace(config, 'CONFIG')} {' '.join(arguments[2:])} works".replace(config, "CONFIG"),
              done.returncode == 0, done.stderr[-400:])


TRAINING = """\
output: {out}
seed: 3
precision: f32
device: {{threads: 1}}
data:
  root: {root}
  split: {{train: 0.6, validation: 0.2, test: 0.2}}
  decode_threads: 1
tasks:
  - name: advection
    files: [slow.nc, fast.nc]
    patch: [4]
model:
  tokens: 8
  dim: 8
  encoder: {{width: 16, frequencies: [1, 2]}}
  decoder: {{hidden: 16, depth: 1, heads: 2, mlp_ratio: 2, frequencies: [1, 2]}}
  operator: {{hidden: 16, depth: 2, heads: 2, mlp_ratio: 2, update_norm: none}}
autoencoder: {{steps: 20, batch_size: 4, queries: 16, optimizer: {{learning_rate: 0.005, warmup_steps: 4}}}}
operator: {{steps: 20, batch_size: 4, optimizer: {{learning_rate: 0.005, warmup_steps: 4}}}}
cache: {{samples_per_shard: 2}}
"""

with tempfile.TemporaryDirectory() as folder:
    check_storage(folder)
    check_types(folder)
    check_records(folder)
    check_records_are_extents(folder)
    check_scipy(folder)
    check_packing(folder)
    check_unsigned(folder)
    check_unwritten(folder)
    check_recognition(folder)
    check_inspect(folder)
    check_h5py(folder)
    check_unit_axes(folder)
    check_bad_files(folder)
    check_training(folder)
print(f"{failures} claims failed" if failures else "all claims hold")
sys.exit(1 if failures else 0)
