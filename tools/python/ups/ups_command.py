"""The command `ups` of the wheel: becomes the program that lies in the package. A module of its own, so that a command does not wait
for NumPy to be imported."""

import os
import signal
import sys

PACKAGE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "ups")


def main():
    program = os.path.join(PACKAGE, "bin", "ups")
    if not os.path.exists(program):
        sys.exit("ups: the Python package was installed without the program; its wheel has both (tools/wheel makes one)")
    if not os.path.exists("/etc/fonts/fonts.conf"):  # for pictures, where there are no fonts
        os.environ.setdefault("FONTCONFIG_FILE", os.path.join(PACKAGE, "share", "fonts", "fonts.conf"))
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and a program keeps that
        signal.signal(ignored, signal.SIG_DFL)
    os.execv(program, [program, *sys.argv[1:]])
