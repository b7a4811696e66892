"""Runs tests of rdma-core's suite one by one, and tells of each in a line of JSON.

    native.py REPORT SECONDS TEST..

A test that takes longer ends the process, with where it stood on standard error; so does one that crashes. Whoever started this
finds then that it has begun but not ended, and goes on with the next. Without tests, REPORT gets the names of all.
"""
import faulthandler
import json
import os
import sys
import unittest

import args_parser

report = open(sys.argv[1], "a", buffering=1)
seconds = float(sys.argv[2])
names = sys.argv[3:]
sys.argv[1:] = ["--dev", "mlx5_0", "--verbose"]
args_parser.parser.parse_args()

import tests  # noqa: E402, which reads the arguments
from tests.base import RDMATestCase  # noqa: E402


def has_gid(self, device, port, index):
    """What the suite asks `ip` for: the address of the port, which is in its GUID. There is no interface with an IP address, and
    no connection manager that would go by one."""
    with open(f"/sys/class/infiniband/{device}/node_guid") as file:
        guid = bytes.fromhex(file.read().strip().replace(":", ""))
    mac = bytes([guid[0] ^ 2]) + guid[1:3] + guid[5:]
    self.args.append([device, port, index, None, mac.hex(":")])


RDMATestCase._get_ip_mac = has_gid


def tell(**what):
    report.write(json.dumps(what) + "\n")


class Told(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        tell(test=test.id(), begins=True)
        sys.stderr.write(f"==== {test.id()}\n")
        faulthandler.dump_traceback_later(seconds, exit=True)
        self.ended = ("passed", "")

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        outcome, why = self.ended
        tell(test=test.id(), outcome=outcome, why=why)

    def addSkip(self, test, reason):
        self.ended = ("skipped", reason)

    def failed(self, test, error):
        self.ended = ("failing", f"{error[0].__name__}: {error[1]}")
        sys.stderr.write(self._exc_info_to_string(error, test) + "\n")

    def addError(self, test, error):
        self.failed(test, error)

    def addFailure(self, test, error):
        self.failed(test, error)

    def addSubTest(self, test, part, error):
        if error is not None:
            self.failed(test, error)


def each(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        else:
            yield test


loader = unittest.defaultTestLoader
faulthandler.enable()
if names:
    loader.loadTestsFromNames(names).run(Told())
else:
    for module in tests.__test_modules__:
        for test in each(loader.loadTestsFromModule(module)):
            tell(test=test.id())
report.flush()
# Threads of a test that failed may still wait.
os._exit(0)
