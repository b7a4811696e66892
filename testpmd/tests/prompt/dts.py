"""What the parsers of DPDK's own test suite make of testpmd's output.

Arguments: the folder `dts` of DPDK's source. Input: a JSON list of [class, text]. Output: for each the fields of the object that
`api/testpmd/types.py` parses it to, as text, or the exception; a line of JSON each. Where the source is older than that file, the parsers
stand in `framework/remote_session/testpmd_shell.py`; for a class that it does not have the line is `{}`.
"""

import dataclasses
import importlib
import json
import os
import sys
import types
import typing


def stand_in(name, **contents):
    """The suite imports more than its parsers use, and what is not there has nothing to do."""
    module = types.ModuleType(name)
    module.__dict__.update(contents)
    sys.modules[name] = module
    return module


class Whatever(type):
    """A class that has whatever is looked for in it."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Whatever(name, (), {})


class Anything(types.ModuleType):
    """A module that has whatever is imported of it."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Whatever(name, (), {})


def parsers_of(dts):
    """The module that has the parsers."""
    stand_in("typing_extensions", Self=typing.Self, Unpack=typing.Unpack)
    for name in ["scapy", "scapy.layers"]:
        stand_in(name, __path__=[])
    stand_in("scapy.layers.inet", IP=object, TCP=object, UDP=object, Ether=object)
    stand_in("scapy.packet", Packet=object)
    for package in ["api", "api.testpmd", "framework", "framework.remote_session"]:
        # Without what they run when they are imported.
        stand_in(package, __path__=[f"{dts}/{package.replace('.', '/')}"])
    if os.path.exists(f"{dts}/api/testpmd/types.py"):
        return importlib.import_module("api.testpmd.types")
    for name in [
        "params",
        "params.testpmd",
        "params.types",
        "remote_session.dpdk_shell",
        "settings",
        "testbed_model",
        "testbed_model.cpu",
        "testbed_model.sut_node",
    ]:
        sys.modules[f"framework.{name}"] = Anything(f"framework.{name}")
    sys.modules["aenum"] = Anything("aenum")
    return importlib.import_module("framework.remote_session.testpmd_shell")


def main():
    parsers = parsers_of(sys.argv[1])
    for name, text in json.load(sys.stdin):
        if not hasattr(parsers, name):
            print("{}")
            continue
        try:
            parsed = getattr(parsers, name).parse(text)
            told = {field.name: str(getattr(parsed, field.name)) for field in dataclasses.fields(parsed)}
        except Exception as error:
            told = {"exception": f"{type(error).__name__}: {error}"}
        print(json.dumps(told))


main()
