"""unit_sandbox.py UNIT PROGRAM ARGUMENT...: runs a program under what a systemd unit sets with seccomp and prctl.

systemd is not needed as the manager; its own tool lists what the groups of system calls hold. What mounts do in a unit
(ProtectSystem, PrivateDevices, ...) is not done here.
"""
import ctypes
import functools
import os
import pathlib
import re
import subprocess
import sys

ALLOW = 0x7FFF0000
REFUSE = 0x00050001  # EPERM
NO_FAMILY = 0x00050061  # EAFNOSUPPORT
PR_SET_NO_NEW_PRIVS = 38
PR_SET_MDWE = 65  # Linux 6.3
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
COMPARE_EQUAL = 4


class Comparison(ctypes.Structure):
    _fields_ = [("argument", ctypes.c_uint), ("operator", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def settings(unit, name):
    return re.findall(r"^%s=(.*)$" % name, pathlib.Path(unit).read_text(), re.M)


@functools.lru_cache(maxsize=None)
def groups():
    """{group: names of system calls and of other groups}."""
    text = subprocess.run(["systemd-analyze", "--no-pager", "syscall-filter"], check=True, capture_output=True,
                          text=True).stdout
    parts = re.split(r"^(@[\w-]+)$", text, flags=re.M)
    return {name: re.findall(r"^    ([@\w-]+)$", body, re.M) for name, body in zip(parts[1::2], parts[2::2])}


def calls_of(name):
    return set().union(*[calls_of(one) for one in groups()[name]]) if name.startswith("@") else {name}


def allowed_calls(unit):
    allowed = calls_of("@default")
    for line in settings(unit, "SystemCallFilter"):
        named = set().union(*[calls_of(name) for name in line.lstrip("~").split()])
        allowed = allowed - named if line.startswith("~") else allowed | named
    return allowed


def filter_calls(unit):
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(REFUSE))
    families, = settings(unit, "RestrictAddressFamilies")

    def add(action, number, comparisons=()):
        array = (Comparison * max(1, len(comparisons)))(*comparisons)
        if library.seccomp_rule_add_array(context, ctypes.c_uint32(action), number, len(comparisons), array) != 0:
            raise OSError("cannot filter system call %d" % number)

    socket = library.seccomp_syscall_resolve_name(b"socket")
    for name in allowed_calls(unit):
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0 and number != socket:
            add(ALLOW, number)
    for family in range(64):
        add(ALLOW if family in {FAMILIES[name] for name in families.split()} else NO_FAMILY, socket,
            [Comparison(0, COMPARE_EQUAL, family, 0)])
    if library.seccomp_load(context) != 0:
        raise OSError("cannot load the filter of system calls")


def denies_new_code(unit):
    return settings(unit, "MemoryDenyWriteExecute") == ["yes"]


def main():
    unit, program, *arguments = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # It holds for this process too, whose callbacks of ctypes need such memory: the filter comes first.
    filter_calls(unit)
    if denies_new_code(unit) and libc.prctl(PR_SET_MDWE, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_MDWE")
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    main()
