"""What the parsers of DPDK's own test suite make of testpmd's output.

Arguments: the folder `dts` of DPDK's source. Input: a JSON list of [class, text]. Output: for each the fields of the object that
`api/testpmd/types.py` parses it to, as text, or the exception; a line of JSON each.
"""

import dataclasses
import json
import sys
import types
import typing


def stand_in(name, **contents):
    """The suite imports more than its parsers use, and what is not there has nothing to do."""
    module = types.ModuleType(name)
    module.__dict__.update(contents)
    sys.modules[name] = module
    return module


def main():
    dts = sys.argv[1]
    stand_in("typing_extensions", Self=typing.Self)
    for name in ["scapy", "scapy.layers"]:
        stand_in(name, __path__=[])
    stand_in("scapy.layers.inet", IP=object, TCP=object, UDP=object, Ether=object)
    stand_in("scapy.packet", Packet=object)
    for package in ["api", "api.testpmd", "framework"]:
        # Without what they run when they are imported.
        stand_in(package, __path__=[f"{dts}/{package.replace('.', '/')}"])
    from api.testpmd import types as parsers

    for name, text in json.load(sys.stdin):
        try:
            parsed = getattr(parsers, name).parse(text)
            told = {field.name: str(getattr(parsed, field.name)) for field in dataclasses.fields(parsed)}
        except Exception as error:
            told = {"exception": f"{type(error).__name__}: {error}"}
        print(json.dumps(told))


main()
