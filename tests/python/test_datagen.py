"""`ups datagen`, seen by h5py and NumPy: layouts, types and attributes as PDEBench's files have them; the numbers by
NumPy's own means. Usage: test_datagen.py UPS"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import h5py
import numpy as np

from skipping import main
from tiny_run import PATIENCE

UPS = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "ups"


def ups(*arguments, **options):
    command = [UPS, "datagen", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **options)


class InDirectory(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="ups-datagen-")
        self.addCleanup(self.directory.cleanup)

    def path(self, name="x.h5"):
        return os.path.join(self.directory.name, name)

    def make(self, *arguments, name="x.h5"):
        done = ups(*arguments, "-o", self.path(name), "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)


class Layouts(InDirectory):
    def check_tensor_file(self, solver, attribute, value, *arguments):
        result = self.make(solver, "-n", 5, "-r", 64, "-s", 21, *arguments)
        self.assertEqual(result["samples"], 5)
        self.assertEqual(result["bytes"], os.path.getsize(self.path()))
        with h5py.File(self.path(), "r") as file:
            self.assertEqual(set(file), {"tensor", "x-coordinate", "t-coordinate"})
            self.assertEqual(file["tensor"].shape, (5, 21, 64))
            self.assertEqual(file["x-coordinate"].shape, (64,))
            self.assertEqual(file["t-coordinate"].shape, (22,))  # one more than the data, as PDEBench's
            for name in file:
                self.assertEqual(file[name].dtype, np.float32)
                self.assertIsNone(file[name].chunks)
            np.testing.assert_array_equal(file["x-coordinate"][:], ((np.arange(64) + 0.5) / 64).astype(np.float32))
            np.testing.assert_array_equal(file["t-coordinate"][:], (2 * np.arange(22) / 20).astype(np.float32))
            self.assertEqual(file.attrs[attribute], value)
            self.assertEqual(file.attrs[attribute].dtype, np.float64)
            made_by = json.loads(file.attrs["ups_datagen"])
            self.assertEqual(made_by["solver"], solver)
            self.assertEqual(made_by["parameters"], result["parameters"])
            tensor = file["tensor"][:]
        self.assertTrue(np.isfinite(tensor).all())
        self.assertEqual(len(np.unique(tensor[:, 0, 0])), 5)  # samples differ
        return tensor

    def test_advection_is_a_tensor_file_with_beta(self):
        self.check_tensor_file("advection1d", "beta", 0.4)

    def test_burgers_is_a_tensor_file_with_nu(self):
        tensor = self.check_tensor_file("burgers1d", "Nu", 0.02, "-p", "nu=0.02")
        np.testing.assert_allclose(tensor.mean(2), tensor.mean(2)[:, :1].repeat(21, 1), atol=1e-6)
        self.assertTrue((np.abs(tensor).max(2)[:, 1:] <= np.abs(tensor).max(2)[:, :-1] + 1e-6).all())

    def test_darcy_is_nu_and_tensor_with_beta(self):
        self.make("darcy2d", "-n", 6, "-r", 48, "-p", "beta=10")
        with h5py.File(self.path(), "r") as file:
            self.assertEqual(set(file), {"nu", "tensor", "x-coordinate", "y-coordinate"})
            self.assertEqual(file["nu"].shape, (6, 48, 48))
            self.assertEqual(file["tensor"].shape, (6, 1, 48, 48))
            for name in file:
                self.assertEqual(file[name].dtype, np.float32)
            self.assertEqual(file.attrs["beta"], 10.0)
            nu, u = file["nu"][:].astype(np.float64), file["tensor"][:, 0].astype(np.float64)
            np.testing.assert_array_equal(file["y-coordinate"][:], ((np.arange(48) + 0.5) / 48).astype(np.float32))
        np.testing.assert_array_equal(np.unique(nu), np.unique(np.float32([0.1, 1.0])))
        # what flows out through the four walls, half a cell away, is what is fed in
        rims = [(nu[:, 0] * u[:, 0]), (nu[:, -1] * u[:, -1]), (nu[:, :, 0] * u[:, :, 0]), (nu[:, :, -1] * u[:, :, -1])]
        np.testing.assert_allclose(sum(2 * rim.sum(1) for rim in rims), 10.0, rtol=1e-5)
        # and so for every cell: by harmonic means of nu between cells
        flux_x = 2 / (1 / nu[:, 1:] + 1 / nu[:, :-1]) * (u[:, :-1] - u[:, 1:])
        flux_y = 2 / (1 / nu[:, :, 1:] + 1 / nu[:, :, :-1]) * (u[:, :, :-1] - u[:, :, 1:])
        inside = flux_x[:, 1:, 1:-1] - flux_x[:, :-1, 1:-1] + flux_y[:, 1:-1, 1:] - flux_y[:, 1:-1, :-1]
        np.testing.assert_allclose(inside, 10.0 / 48**2, atol=4e-7 * u.max() * 4)

    def test_reaction_diffusion_is_a_tensor_file_with_nu_and_rho(self):
        result = self.make("reacdiff1d", "-n", 3, "-r", 64, "-s", 21, "-p", "rho=5")
        self.assertEqual(result["continued"], 0)
        with h5py.File(self.path(), "r") as file:
            self.assertEqual(set(file), {"tensor", "x-coordinate", "t-coordinate"})
            self.assertEqual(file["t-coordinate"].shape, (22,))
            self.assertEqual((file.attrs["Nu"], file.attrs["rho"]), (0.5, 5.0))
            tensor = file["tensor"][:].astype(np.float64)
        self.assertEqual((tensor[:, 0].min(), tensor[:, 0].max()), (0.0, 1.0))
        self.assertTrue((np.diff(tensor.mean(2), axis=1) > 0).all())  # it only grows
        # where it has become uniform it follows the logistic curve
        last, before, growth = tensor[:, -1].mean(1), tensor[:, -11].mean(1), np.exp(5 * 0.5)
        np.testing.assert_allclose(last, before * growth / (1 + before * (growth - 1)), rtol=1e-5)

    def check_seed_groups(self, solver, shape, edge, t_end, *arguments):
        """Groups as PDEBench's generators write them; returns the data and the YAML of each."""
        self.make(solver, "-n", 3, "-r", shape[1], "-s", shape[0], *arguments)
        data, configs = [], []
        with h5py.File(self.path(), "r") as file:
            self.assertEqual(set(file), {"0000", "0001", "0002"})
            for group in file.values():
                axes = ["t", "x", "y"][: len(shape) - 1]
                self.assertEqual(set(group), {"data", "grid"})
                self.assertEqual(set(group["grid"]), set(axes))
                self.assertEqual(group["data"].shape, shape)
                self.assertEqual(group["data"].dtype, np.float32)
                np.testing.assert_allclose(group["grid/t"][:], np.linspace(0, t_end, shape[0]), rtol=1e-6)
                width = (edge[1] - edge[0]) / shape[1]
                for axis in axes[1:]:
                    centres = np.linspace(edge[0] + width / 2, edge[1] - width / 2, shape[1])
                    np.testing.assert_allclose(group["grid/" + axis][:], centres, rtol=1e-5, atol=1e-6)
                self.assertIsInstance(group.attrs["config"], str)
                configs.append(dict(line.strip().split(": ") for line in group.attrs["config"].splitlines()
                                    if line.startswith("  ")))
                data.append(group["data"][:].astype(np.float64))
        self.assertEqual([config["seed"] for config in configs], ["0", "1", "2"])
        return np.array(data), configs

    def test_diffusion_sorption_is_groups_of_one_field(self):
        data, configs = self.check_seed_groups("diffsorp1d", (11, 64, 1), (0, 1), 500)
        self.assertEqual(configs[0]["por"], "0.29")
        self.assertTrue((data[:, 0].max((1, 2)) == data[:, 0].min((1, 2))).all() and (data[:, 0] < 0.2).all())
        self.assertTrue((data[:, 1:, 0] > 0.8).all() and (data <= 1).all())

    def test_diffusion_reaction_is_groups_of_two_fields(self):
        data, configs = self.check_seed_groups("diffreact2d", (6, 32, 32, 2), (-1, 1), 5)
        self.assertEqual((configs[1]["Du"], configs[1]["Dv"], configs[1]["k"]), ("0.001", "0.005", "0.005"))
        np.testing.assert_allclose(data[:, 0].std((1, 2)), 1.0, atol=0.1)
        # summed over the square diffusion is nothing: the mean of v follows the means of u and v
        u, v = data[..., 0].mean((2, 3)), data[..., 1].mean((2, 3))
        rise = np.trapezoid(u - v, dx=1.0, axis=1) if hasattr(np, "trapezoid") else np.trapz(u - v, dx=1.0, axis=1)
        np.testing.assert_allclose(v[:, -1] - v[:, 0], rise, atol=0.1)

    def test_a_radial_dam_is_groups_of_depths(self):
        data, configs = self.check_seed_groups("swe2d", (6, 40, 40, 1), (-2.5, 2.5), 1, "-p", "inner_height=3")
        area = (5 / 40) ** 2
        for depth, config in zip(data[..., 0], configs):
            radius = float(config["dam_radius"])
            self.assertTrue(0.3 <= radius < 0.7)
            volume = (depth - 1).sum((1, 2)) * area
            np.testing.assert_allclose(volume[0], 2 * np.pi * radius**2, rtol=0.02)
            np.testing.assert_allclose(volume, volume[0], rtol=1e-5)  # nothing has reached the edge

    def test_files_of_compressible_flow_say_what_happens_at_their_boundary(self):
        across = "periodic in x, outgoing in y"
        for solver, said, boundary in [("cfd1d_rand", "periodic", "periodic"), ("cfd1d_shock", "trans", "outgoing"),
                                       ("cfd1d_shock -p outgoing=0", "periodic", "periodic"), ("cfd1d_sod", "trans", "outgoing"),
                                       ("cfd2d_rand", "periodic", "periodic"), ("cfd2d_rand -p outgoing=1", "trans", "outgoing"),
                                       ("cfd2d_turb", "periodic", "periodic"), ("cfd2d_kh", "KHI", across),
                                       ("cfd2d_otvortex", "periodic", "periodic"), ("cfd3d_rand", "periodic", "periodic"),
                                       ("cfd3d_turb", "periodic", "periodic")]:
            with self.subTest(solver):
                self.make(*solver.split(), "-n", 1, "-r", 16, "-s", 2, "--force", name="of_any_name.h5")
                with h5py.File(self.path("of_any_name.h5"), "r") as file:
                    self.assertEqual(file.attrs["bc"], said)
                shown = subprocess.run([UPS, "data", "inspect", "--json", self.path("of_any_name.h5")],
                                       capture_output=True, text=True, timeout=PATIENCE)
                facts = json.loads(shown.stdout)[0]
                self.assertEqual((facts["boundary"], facts["periodic"]), (boundary, boundary == "periodic"))

    def test_data_inspect_knows_the_files(self):
        listed = json.loads(ups("--list", "--json").stdout)
        self.assertGreaterEqual(len(listed), 7)
        for solver in listed:
            name = solver["name"]
            steps = ["-s", 3] if solver["steps"] else []
            self.make(name, "-n", 2, "-r", 16, *steps, name=name + ".h5")
            done = subprocess.run([UPS, "data", "inspect", self.path(name + ".h5")], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, name + done.stderr)


class Advection(InDirectory):
    def test_rows_are_the_first_row_shifted_by_numpy(self):
        # 0.4 · 2 over 40 intervals of 250 cells: 5 cells an interval
        self.make("advection1d", "-n", 200, "-r", 250, "-s", 41)
        with h5py.File(self.path(), "r") as file:
            tensor = file["tensor"][:]
        for step in range(41):
            np.testing.assert_allclose(tensor[:, step], np.roll(tensor[:, 0], 5 * step, axis=1), atol=3e-7)

    def test_smooth_rows_are_shifted_by_any_fraction_of_a_cell_as_fourier_says(self):
        self.make("advection1d", "-n", 50, "-r", 96, "-s", 17, "-p", "p_window=0", "-p", "p_absolute=0", "-p", "beta=-0.77")
        with h5py.File(self.path(), "r") as file:
            tensor = file["tensor"][:].astype(np.float64)
        wavenumber = np.fft.rfftfreq(96, 1 / 96)
        first = np.fft.rfft(tensor[:, 0])
        self.assertLess(np.abs(first[:, 9:]).max(), 1e-4)  # no wave above k_max = 8
        for step, now in enumerate(np.linspace(0, 2, 17)):
            shifted = np.fft.irfft(first * np.exp(-2j * np.pi * wavenumber * -0.77 * now), 96)
            np.testing.assert_allclose(tensor[:, step], shifted, atol=1e-6)

    def test_a_larger_file_begins_with_the_smaller_one(self):
        self.make("advection1d", "-n", 3, "-r", 32, "-s", 5, name="few.h5")
        self.make("advection1d", "-n", 30, "-r", 32, "-s", 5, name="many.h5")
        with h5py.File(self.path("few.h5")) as few, h5py.File(self.path("many.h5")) as many:
            np.testing.assert_array_equal(few["tensor"][:], many["tensor"][:3])


class Failures(InDirectory):
    def assert_refused(self, done, code, *parts):
        self.assertEqual(done.returncode, code, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)
        self.assertEqual(os.listdir(self.directory.name), [])

    def test_mistakes_on_the_command_line_are_answered(self):
        out = self.path()
        self.assert_refused(ups("-o", out), 2, "advection1d")
        self.assert_refused(ups("burger1d", "-o", out), 2, "did you mean burgers1d")
        self.assert_refused(ups("burgers1d"), 2, "-o FILE")
        self.assert_refused(ups("burgers1d", "-o", out, "--samples", "0"), 2, "--samples")
        self.assert_refused(ups("burgers1d", "-o", out, "-p", "beta=1"), 1, "no parameter 'beta'", "nu")
        self.assert_refused(ups("darcy2d", "-o", out, "-s", "4"), 1, "steady")
        answer = ups("darcy2d", "-o", out, "-p", "nu_low=-1", "--json")
        self.assert_refused(answer, 1)
        self.assertEqual(json.loads(answer.stdout)["error"]["code"], "argument")

    def test_a_full_disk_is_told_before_the_work(self):
        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        # Python ignores SIGXFSZ; left so, the child gets an error instead of a signal
        done = ups("advection1d", "-n", 100, "-o", self.path(), preexec_fn=small_files, restore_signals=False)
        self.assert_refused(done, 1, "no room", self.path())

    def test_a_link_stays_and_what_it_leads_to_is_made_and_replaced(self):
        elsewhere = tempfile.TemporaryDirectory(prefix="ups-datagen-")
        self.addCleanup(elsewhere.cleanup)
        target = os.path.join(elsewhere.name, "large.h5")
        os.symlink(target, self.path())
        for more in ([], ["--force"]):
            self.make("darcy2d", "-n", 1, "-r", 16, *more)
            self.assertEqual(os.readlink(self.path()), target)
            self.assertEqual((os.listdir(self.directory.name), os.listdir(elsewhere.name)), (["x.h5"], ["large.h5"]))
        os.unlink(target)
        os.symlink(self.path(), target)
        refused = ups("darcy2d", "-n", 1, "-r", 16, "-o", self.path())
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"{self.path()}: cannot be created: its symbolic links lead round in a circle", refused.stderr)

    def start(self, samples):
        """A run of its own, under way: it has noted samples beyond those that it found."""
        journal = os.path.join(self.directory.name, ".x.h5.ups-journal")
        noted = os.path.getsize(journal) if os.path.exists(journal) else 0
        run = subprocess.Popen([UPS, "datagen", "burgers1d", "-n", str(samples), "-r", "512", "-s", "11", "-t", "2", "-o", self.path()],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while run.poll() is None and not (os.path.exists(journal) and os.path.getsize(journal) > noted + 1000):
            time.sleep(0.01)
        return run

    def kill_a_run(self):
        """Of how many samples the run was that could be killed before it was done."""
        for samples in (3000, 12000, 48000):
            run = self.start(samples)
            run.kill()
            run.communicate()
            if run.returncode == -signal.SIGKILL and not os.path.exists(self.path()):
                return samples
            os.remove(self.path())
        self.fail("every run was done before it could be killed")

    def test_interrupted_work_is_kept_and_says_how_to_go_on(self):
        for sent in (signal.SIGINT, signal.SIGTERM):
            run = self.start(100000)
            run.send_signal(sent)
            _, stderr = run.communicate(timeout=PATIENCE)
            self.assertEqual(run.returncode, 130, stderr)
            self.assertIn("of 100000 samples", stderr)
            self.assertIn("the same command continues", stderr)
            self.assertEqual(sorted(os.listdir(self.directory.name)), [".x.h5.ups-journal", ".x.h5.ups-unfinished"])

    def test_a_killed_run_goes_on_where_it_was(self):
        samples = self.kill_a_run()
        self.assertEqual(sorted(os.listdir(self.directory.name)), [".x.h5.ups-journal", ".x.h5.ups-unfinished"])
        result = self.make("burgers1d", "-n", samples, "-r", 512, "-s", 11)
        self.assertGreater(result["continued"], 0)
        self.assertEqual(os.listdir(self.directory.name), ["x.h5"])

    def test_what_a_killed_run_left_is_not_taken_for_another_and_restart_discards_it(self):
        samples = self.kill_a_run()
        other = ["burgers1d", "-n", 2, "-r", 32, "-s", 3]
        refused = ups(*other, "-o", self.path())
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"samples is {samples} there and 2 here", refused.stderr)
        self.make(*other, "--restart")
        self.assertEqual(os.listdir(self.directory.name), ["x.h5"])

    def test_help_lists_every_solver_and_teaches_the_parameters_of_one(self):
        text = ups("--help").stdout
        for solver in json.loads(ups("--list", "--json").stdout):
            self.assertIn(solver["name"], text)
            one = ups(solver["name"], "--help").stdout
            self.assertIn(solver["equation"].splitlines()[0], one)
            for parameter in solver["parameters"]:
                self.assertIn(f"--param {parameter['name']}={parameter['default']:g}", one)
        self.assertIn("length^2/time", ups("burgers1d", "--help").stdout)


if __name__ == "__main__":
    main()
