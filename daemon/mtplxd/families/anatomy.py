"""Where the parts of mlx-lm's model classes are: what embeds, what runs the layers, the final norm, the output matrix.

It finds them by the names that the classes use; what cannot be found is refused. How logits are made of a hidden state
is left to the class itself, soft-caps and scales included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mtplxd.errors import FailedPrecondition
from mtplxd.platform.mlx import Array

_INNER = ("model", "backbone", "transformer")
_EMBEDDINGS = ("embed_tokens", "embeddings", "word_embeddings", "tok_embeddings", "embedding", "wte")
_NORMS = ("norm", "norm_f", "final_layernorm", "final_norm", "embedding_norm", "ln_f")
_OUTPUTS = ("lm_head", "output")


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The parts of one model. `language` is the module that makes logits of what its `inner` one gives.

    `output` is its own output matrix, None where the embedding is used; `norm_name` is the final norm's name in
    `inner`.
    """

    language: Any
    inner_name: str
    embedding: Any
    norm_name: str
    output: Any

    @property
    def inner(self) -> Any:
        """Runs the layers: tokens and caches to the final-normed hidden."""
        return getattr(self.language, self.inner_name)

    @property
    def output_matrix(self) -> Any:
        """The module whose rows are the vocabulary's: the embedding where the two are tied."""
        return self.embedding if self.output is None else self.output

    @property
    def vocab_size(self) -> int:
        """Number of logits."""
        return int(self.output_matrix.weight.shape[0])


def find_anatomy(model: Any) -> Anatomy:
    """The parts of a causal model of mlx-lm. Raises FailedPrecondition where its class is built some other way."""
    language = model
    while getattr(language, "language_model", None) is not None:
        language = language.language_model
    inner_name = _name_of(language, _INNER)
    inner = getattr(language, inner_name, None)
    embedding, norm = _name_of(inner, _EMBEDDINGS), _name_of(inner, _NORMS)
    if not embedding or not norm:
        kind = getattr(model, "model_type", type(model).__name__)
        raise FailedPrecondition("this body's class is not built as others are", kind, "see `mtplx ls`")
    output = getattr(language, _name_of(language, _OUTPUTS), None)
    return Anatomy(language, inner_name, getattr(inner, embedding), norm, output)


def _name_of(module: Any, names: tuple[str, ...]) -> str:
    return next((name for name in names if getattr(module, name, None) is not None), "")


class Outlet:
    """Makes logits of a hidden state by a class's own code, which sees itself with an inner model that has run."""

    def __init__(self, anatomy: Anatomy) -> None:
        self._language = anatomy.language
        self._ran = _Ran(anatomy.inner)
        setattr(self, anatomy.inner_name, self._ran)

    def logits(self, hidden: Array) -> Array:
        """Final hidden [..., H] to logits [..., V]."""
        self._ran.hidden = hidden
        like_tokens = hidden[..., 0]  # some ask for their shape
        try:
            return type(self._language).__call__(self, like_tokens)
        finally:
            self._ran.hidden = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._language, name)

    def __contains__(self, name: str) -> bool:
        return name in self._language


class _Ran:
    """An inner model whose output is known."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.hidden: Array | None = None

    def __call__(self, *_args: Any, **_kwargs: Any) -> Array | None:
        return self.hidden

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
