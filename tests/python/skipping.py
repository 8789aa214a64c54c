"""unittest, where a test that is skipped says why in the line that tests/run collects."""

import unittest


def skipped(claim, reason):
    print(f"\nSKIPPED {claim}: {reason}", flush=True)  # on a line of its own: unittest writes its dots without an end


class Result(unittest.TextTestResult):
    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        skipped(test.id().rpartition(".")[2], reason)


def main():
    unittest.main(testRunner=unittest.TextTestRunner(resultclass=Result))
