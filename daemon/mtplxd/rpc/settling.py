"""What a request becomes on the model it is for: sampler and depth in force, its prompt's ids, its grammar.

Checks against a loaded model only; what a client's words mean by themselves is `validate`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mtplxd.engine.request import SamplerSettings
from mtplxd.errors import InvalidArgument
from mtplxd.residency.catalog import sampler_defaults
from mtplxd.residency.entry import Lease
from mtplxd.residency.wishes import check_depth
from mtplxd.rpc.validate import AUTO_DEPTH, Asked, Structure
from mtplxd.rpc.validate_sampler import refuse_draft, settle_sampler

if TYPE_CHECKING:  # the daemon serves before model libraries are imported
    from mtplxd.engine.grammar import Grammar

Spoken = Mapping[int, Sequence[int]]
SEEDS = 2**64
"""Seeds are 64 bits wide; those of later choices begin again at 0."""


def choice_samplers(sampler: SamplerSettings, count: int) -> tuple[SamplerSettings, ...]:
    """The sampler of each choice: one seed after the other, from the request's."""
    return tuple(replace(sampler, seed=(sampler.seed + choice) % SEEDS) for choice in range(count))


def refuse_hopeless(asked: Asked, lease: Lease) -> None:
    """Raises InvalidArgument for a text that no tokenisation brings into the context, and for too many ids.

    Tokenising a huge text takes minutes, in which nobody else's prompt is tokenised; ids are copied to be of use.
    """
    if asked.tokens is not None:
        check_length(len(asked.tokens), lease)
    texts = [asked.text or "", *(message["content"] for message in asked.messages or ())]
    size, longest = sum(len(text.encode()) for text in texts), lease.model.tokenizer.longest_token
    least, context = -(-size // longest), lease.model.context
    if least > context:
        raise InvalidArgument(
            "prompt is longer than the context",
            f"{size} bytes are at least {least} tokens, the context holds {context}",
            "shorten it so that at least one token fits behind it",
            field="prompt",
        )


def settle_sampling(asked: Asked, lease: Lease) -> tuple[SamplerSettings, ChosenDepth]:
    """The sampler in force and the depth. Raises InvalidArgument or FailedPrecondition where the model cannot."""
    model = lease.model
    sampler = settle_sampler(asked.sampler, sampler_defaults(model.pack), model.target.vocab_size)
    depth = settle_depth(asked, lease)
    if depth.most == 0:
        refuse_draft(asked.sampler.draft, "this model decodes plainly here, and drafts nothing")
    return sampler, depth


def compile_structure(structure: Structure, lease: Lease) -> Grammar:
    """May take long, so never on the loop. Raises InvalidArgument naming the field."""
    from mtplxd.engine.grammar import compile_grammar

    model = lease.model
    return compile_grammar(
        structure.kind, structure.text, model.tokenizer, model.target.vocab_size, model.eos_ids
    )


def tokenise(asked: Asked, lease: Lease, spoken: Spoken | None = None) -> list[int]:
    """The prompt's ids; may take long, so never on the loop. `spoken` are ids that messages were generated with, by
    place. Raises InvalidArgument for unknown ones."""
    tokenizer = lease.model.tokenizer
    if asked.tokens is not None:
        beyond = next((token for token in asked.tokens if token >= tokenizer.vocab_size), None)
        if beyond is not None:
            fix = f"the model has {tokenizer.vocab_size} tokens"
            raise InvalidArgument("unknown token id", beyond, fix, field="tokens")
        return list(asked.tokens)
    if asked.text is not None:
        return tokenizer.encode(asked.text)
    return tokenizer.render_chat([dict(message) for message in asked.messages or ()], spoken)


def check_prompt(prompt: list[int], lease: Lease) -> None:
    """Raises InvalidArgument where the model cannot go on from it."""
    if not prompt:
        raise InvalidArgument("empty prompt", "0 tokens", "give some text", field="prompt")
    check_length(len(prompt), lease)


def check_length(tokens: int, lease: Lease) -> None:
    """Raises InvalidArgument where not one token fits behind a prompt of so many."""
    context = lease.model.context
    if tokens >= context:
        raise InvalidArgument(
            "prompt is longer than the context",
            f"{tokens} tokens, the context holds {context}",
            "shorten it so that at least one token fits behind it",
            field="prompt",
        )


@dataclass(frozen=True, slots=True)
class ChosenDepth:
    """Tokens to draft a round; with `auto` that is the most, and each round's depth is chosen as the text goes."""

    most: int
    auto: bool = False


def settle_depth(asked: Asked, lease: Lease) -> ChosenDepth:
    """The request's depth, else the model's own: auto, unless it was loaded with one.

    Raises InvalidArgument or FailedPrecondition where the head cannot draft that far.
    """
    if asked.plain:
        return ChosenDepth(0)
    if asked.depth == AUTO_DEPTH or (asked.depth is None and lease.auto):
        most = lease.model.depth_max if lease.model.head is not None else 0
        return ChosenDepth(most, auto=most > 0)
    if asked.depth is None:
        return ChosenDepth(lease.depth)
    check_lease_depth(asked.depth, lease)
    return ChosenDepth(asked.depth)


def check_lease_depth(depth: int, lease: Lease) -> None:
    """`check_depth` for a model in memory."""
    model = lease.model
    check_depth(depth, model.depth_max if model.head is not None else 0, model.name)
