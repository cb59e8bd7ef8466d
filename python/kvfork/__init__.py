"""kvfork: process a fixed context once, answer many requests from it, bit for bit as if there were no cache.

    import kvfork
    model = kvfork.Model.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct", dtype="float32")
    context = model.prefill(system="You answer from this policy: ...")
    print(context.generate("What do I need for a refund?").text)
"""

from ._core import __version__
from .context import Answer, Context, Score
from .errors import (BoundaryError, CorruptError, Error, InvalidArgumentError, IoError, IsolationError, LimitError,
                     NetworkError, NotFoundError, ParityError, TemplateError, UnsupportedError)
from .model import Model

__all__ = ["Answer", "BoundaryError", "Context", "CorruptError", "Error", "InvalidArgumentError", "IoError",
           "IsolationError", "LimitError", "Model", "NetworkError", "NotFoundError", "ParityError", "Score",
           "TemplateError", "UnsupportedError", "__version__"]
