"""The exceptions of the package, one class for all of them."""

import errno as _errno

# The `errno` of each code, for those that bring none from the operating system.
_NUMBERS = {
    "not_found": _errno.ENOENT,
    "not_a_store": _errno.EINVAL,
    "version": _errno.EINVAL,
    "corrupt": _errno.EBADMSG,
    "locked": _errno.EAGAIN,
    "too_large": _errno.EFBIG,
    "hash_mismatch": _errno.EINVAL,
    "read_only": _errno.EACCES,
    "exists": _errno.EEXIST,
    "poisoned": _errno.EIO,
    "full": _errno.ENOSPC,
    "unsupported": _errno.EOPNOTSUPP,
    "invalid": _errno.EINVAL,
    "snapshot_too_old": _errno.ESTALE,
    "conflict": _errno.EAGAIN,
    "closed": _errno.EBADF,
    "forked": _errno.EBADF,
}


class error(OSError):
    """What the package raises, but for a missing key, which is a `KeyError`.

    `code` says what happened: ``"locked"``, ``"not_found"``, ``"corrupt"`` and so on. `errno` and
    `filename` are set as with every `OSError`.

    It is an instance of what Python itself would raise, too: of `FileNotFoundError`,
    `FileExistsError`, `PermissionError` and so on by its `errno`, and of `ValueError` for an option
    that makes no sense and for a call on a closed table.

    >>> import splitpoint
    >>> try:
    ...     splitpoint.open("/no/such/file", "r")
    ... except FileNotFoundError as caught:
    ...     print(type(caught).__mro__[1].__name__, caught.code)
    error not_found
    """

    code = "other"

    def __str__(self):
        return self.strerror or super().__str__()

    def __reduce__(self):
        # One that a program has made itself, without a number.
        if self.strerror is None:
            return super().__reduce__()
        return make, (self.code, self.errno, self.strerror, self.filename)


def make(code, number, message, path):
    """Return the exception with this code; `number` is the operating system's, if there is one."""
    number = number or _NUMBERS.get(code, _errno.EIO)
    builtin = ValueError if code in ("invalid", "closed") else type(OSError(number, message))
    arguments = (number, message) if path is None else (number, message, path)
    made = _class_beside(builtin)(*arguments)
    made.code = code
    return made


# `error`, derived from a built-in class as well.
_BESIDE = {OSError: error}


def _class_beside(builtin):
    if builtin not in _BESIDE:
        members = {"__module__": "splitpoint", "__doc__": error.__doc__}
        _BESIDE[builtin] = type("error", (error, builtin), members)
    return _BESIDE[builtin]


error.__module__ = "splitpoint"
