"""The exceptions of kvfork: one class per kind of failure, all of them ``kvfork.Error``."""

from __future__ import annotations

from typing import Optional


class Error(Exception):
    """Base of all. The message names the subject, what was expected, what was found, and a hint."""


class NotFoundError(Error, FileNotFoundError):
    """A file, tensor, repository or name that is not there."""


class CorruptError(Error, ValueError):
    """Bytes that break their format."""


class UnsupportedError(Error, NotImplementedError):
    """Well-formed, but something that kvfork does not run."""


class InvalidArgumentError(Error, ValueError):
    """A value that the caller gave is out of range or malformed."""


class IoError(Error, OSError):
    """The operating system refused."""


class NetworkError(Error, ConnectionError):
    """A transfer failed."""


class TemplateError(Error, ValueError):
    """A chat template failed to parse or to render."""


class LimitError(Error, ValueError):
    """A bound was reached: the context length, steps, or memory."""


class BoundaryError(Error, ValueError):
    """The cached tokens are not an exact prefix of the request.

    position: the first index where the two differ. context_id, request_id: the ids there, None where one ends.
    """

    position: Optional[int] = None
    context_id: Optional[int] = None
    request_id: Optional[int] = None


class ParityError(Error):
    """Cached and uncached results differ."""


class IsolationError(Error):
    """A context changed after it was sealed."""
