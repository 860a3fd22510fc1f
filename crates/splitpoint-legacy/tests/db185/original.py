"""Drives the original db 1.85 of glibc, libdb1: what the tests compare with.

usage: original.py find
       original.py dump FILE
       original.py make FILE PAGE_BYTES FILL_FACTOR EXPECTED_RECORDS ORDER < PAIRS
       original.py change FILE < PAIRS

`find` exits with 0 if there is such a library. `dump` prints `<key hex> <value hex>` for each pair
that a scan returns, sorted, and fails if a lookup does not find one of them. `make` stores pairs of
that form in a new file, `change` in one that is there; a line `<key hex>` alone deletes. An empty
string is `-`. The original crashes on some files: the exit status tells.
"""

import ctypes
import os
import sys

DB_HASH = 1
R_FIRST, R_NEXT = 3, 7
LIBRARIES = ["libdb1.so.2", "/lib/libdb1.so.2", "/usr/lib/libdb1.so.2"]


class Datum(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class Parameters(ctypes.Structure):
    _fields_ = [
        ("page_bytes", ctypes.c_uint),
        ("fill_factor", ctypes.c_uint),
        ("expected_records", ctypes.c_uint),
        ("cache_bytes", ctypes.c_uint),
        ("hash", ctypes.c_void_p),
        ("order", ctypes.c_int),
    ]


class Table(ctypes.Structure):
    pass


POINTER, DATUM = ctypes.POINTER(Table), ctypes.POINTER(Datum)
CLOSE = ctypes.CFUNCTYPE(ctypes.c_int, POINTER)
DELETE = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, DATUM, ctypes.c_uint)
PAIR = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, DATUM, DATUM, ctypes.c_uint)
Table._fields_ = [
    ("type", ctypes.c_int),
    ("close", CLOSE),
    ("delete", DELETE),
    ("get", PAIR),
    ("put", PAIR),
    ("seq", PAIR),
]


def library():
    for name in [os.environ.get("LIBDB1"), *LIBRARIES]:
        try:
            if name:
                return ctypes.CDLL(name)
        except OSError:
            pass
    sys.exit("libdb1 is not installed")


def open_table(path, flags, parameters=None):
    dbopen = library().dbopen
    dbopen.restype = POINTER
    dbopen.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    # A large cache: with a small one the original runs out of buffers on long chains.
    parameters = parameters or Parameters(0, 0, 0, 64 << 20, None, 0)
    table = dbopen(path.encode(), flags, 0o644, DB_HASH, ctypes.addressof(parameters))
    if not table:
        sys.exit("dbopen: " + os.strerror(ctypes.get_errno()))
    return table


def datum(data):
    buffer = ctypes.create_string_buffer(data, len(data) + 1)
    result = Datum(ctypes.cast(buffer, ctypes.c_void_p), len(data))
    result.buffer = buffer
    return result


def text(data):
    return data.hex() or "-"


def data(text):
    return b"" if text == "-" else bytes.fromhex(text)


def dump(path):
    table = open_table(path, os.O_RDONLY)
    pairs, key, value, flag = [], Datum(), Datum(), R_FIRST
    while True:
        status = table.contents.seq(table, ctypes.byref(key), ctypes.byref(value), flag)
        if status == 1:
            break
        if status != 0:
            sys.exit("seq failed")
        pair = [ctypes.string_at(d.data, d.size) if d.size else b"" for d in (key, value)]
        pairs.append(pair)
        flag = R_NEXT
    for key, value in pairs:
        found = Datum()
        status = table.contents.get(table, ctypes.byref(datum(key)), ctypes.byref(found), 0)
        got = ctypes.string_at(found.data, found.size) if found.size else b""
        if status != 0 or got != value:
            sys.exit(f"get: {status} for {key!r}")
    for line in sorted(f"{text(key)} {text(value)}" for key, value in pairs):
        print(line)


def change(table):
    for line in sys.stdin:
        fields = line.split()
        key = datum(data(fields[0]))
        if len(fields) == 1:
            status = table.contents.delete(table, ctypes.byref(key), 0)
        else:
            value = datum(data(fields[1]))
            status = table.contents.put(table, ctypes.byref(key), ctypes.byref(value), 0)
        if status != 0:
            sys.exit(f"put or delete: {status}")
    if table.contents.close(table) != 0:
        sys.exit("close failed")


def main():
    command, *arguments = sys.argv[1:]
    if command == "find":
        library()
    elif command == "dump":
        dump(arguments[0])
    elif command == "make":
        page_bytes, fill_factor, records, order = map(int, arguments[1:])
        parameters = Parameters(page_bytes, fill_factor, records, 64 << 20, None, order)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        change(open_table(arguments[0], flags, parameters))
    else:
        change(open_table(arguments[0], os.O_RDWR))


main()
