# SPDX-License-Identifier: Apache-2.0
"""Decoding: token ids in, token ids out.

    generator = tessera.generation.Generator("decoder.onnx", "fsim", "npu256", max_length=256, block=16)
    for step in generator.stream([prompt], 40):
        print(step.tokens[0], step.cycles)

The model is a decoder with past and present: `input_ids` [batch, tokens], keys and values of the past as inputs that a
Concat (or an attention) extends into outputs, and, where the model has them, `position_ids` [batch, tokens] and
`attention_mask` [batch, past + tokens]. Its first other output is either logits [batch, tokens, words], of which the
largest is taken, or integers [batch, tokens]: the chosen tokens. It is compiled once for a step and once for a block of
the prompt, whatever the length of the past; keys and values stay in the device's memory."""

import dataclasses

import numpy as np

from . import Session

NAMES = ("input_ids", "position_ids", "attention_mask")


@dataclasses.dataclass
class Step:
    """What one run did: `position` of its first token, `count` tokens of each sequence taken, `tokens` [batch] that
    follow them (of the prompt where that goes on), `logits` [batch, words] of the last one (None where the model
    chooses itself), `cycles` of the run (None on devices without time), and whether all tokens are `generated`."""

    position: int
    count: int
    tokens: np.ndarray
    logits: np.ndarray | None
    cycles: int | None
    generated: bool


class Generator:
    """A decoder on a device. model, device, config and options are Session's. max_length: tokens of prompt and answer
    together, at most. block: tokens of the prompt that one run takes, where the model leaves their number open.
    Errors: tessera.Error as Session; ValueError for a model or a prompt that is no such thing."""

    def __init__(self, model, device="fsim", config="", *, max_length, block=16, **options):
        self.max_length = max_length
        self.session = Session(model, device, config, max_length=max_length, **options)
        self._inputs = {port.name: port for port in self.session.get_inputs()}
        self._pasts = self.session.pasts()
        if "input_ids" not in self._inputs or not self._pasts:
            raise ValueError(
                "the model is no decoder with past and present: it has no input_ids, or no past that grows"
            )
        known = {*NAMES, *(past for past, _, _ in self._pasts)}
        if unknown := sorted(set(self._inputs) - known):
            raise ValueError(f"the model's input {unknown[0]!r} is none of {', '.join(NAMES)} and no past")
        tokens = self._inputs["input_ids"].shape[1]
        self._fixed = tokens if isinstance(tokens, int) else None
        self.block = self._fixed or max(1, min(block, max_length - 2))
        presents = {present for _, present, _ in self._pasts}
        self._answer = next(port.name for port in self.session.get_outputs() if port.name not in presents)

    def _empty(self, batch):
        """Pasts of length 0."""
        feeds = {}
        for name, _, axis in self._pasts:
            port = self._inputs[name]
            shape = [n if isinstance(n, int) else batch for n in port.shape]
            shape[axis] = 0
            element = {"float": "float32", "double": "float64"}.get(port.type[7:-1], port.type[7:-1])
            feeds[name] = np.zeros(shape, element)
        return feeds

    def _run(self, ids, position, pasts):
        """(answer, pasts after it)."""
        binding = self.session.io_binding()
        batch, count = ids.shape
        feeds = {"input_ids": ids, **pasts}
        if "position_ids" in self._inputs:
            feeds["position_ids"] = np.tile(np.arange(position, position + count), (batch, 1))
        if "attention_mask" in self._inputs:
            feeds["attention_mask"] = np.ones((batch, position + count), np.int64)
        for name, value in feeds.items():
            binding.bind_input(name, value)
        binding.bind_output(self._answer)
        for _, present, _ in self._pasts:
            binding.bind_output_to_device(present)
        binding.run()
        results = binding.outputs()
        return results[self._answer], {past: results[present] for past, present, _ in self._pasts}

    def _count(self, position, prompt):
        """Tokens of the run that begins at `position`. What `prompt` tokens are more than whole blocks comes first."""
        first = (prompt - 1) % self.block + 1
        count = 1 if position >= prompt else self.block if position else first
        if self._fixed and count != self._fixed:
            raise ValueError(f"the model takes {self._fixed} tokens at a time, and {prompt} are no multiple")
        return count

    def stream(self, prompts, new_tokens):
        """Yields a Step for each run until each sequence has `new_tokens` behind its prompt. prompts: a list of token
        ids for each sequence of the batch, of any lengths from 1; a sequence whose prompt ends sooner answers while the
        others still read."""
        prompts = [np.asarray(prompt, np.int64).reshape(-1) for prompt in prompts]
        lengths = [len(prompt) for prompt in prompts]
        if not prompts or min(lengths) < 1:
            raise ValueError("each prompt has at least one token")
        total = max(lengths) + new_tokens
        if total - 1 > self.max_length:
            raise ValueError(f"{max(lengths)} tokens of prompt and {new_tokens} behind it exceed {self.max_length}")
        text = np.zeros((len(prompts), total), np.int64)
        for row, prompt in zip(text, prompts, strict=True):
            row[: len(prompt)] = prompt
        pasts, position = self._empty(len(prompts)), 0
        while position < total - 1:
            count = self._count(position, min(lengths))
            answer, pasts = self._run(text[:, position : position + count], position, pasts)
            logits = None if np.issubdtype(answer.dtype, np.integer) else answer[:, -1]
            chosen = answer[:, -1] if logits is None else logits.argmax(-1)
            position_after = position + count
            going = [position_after >= length for length in lengths]
            if position_after < total:
                for row, generated in enumerate(going):
                    if generated:
                        text[row, position_after] = chosen[row]
            yield Step(position, count, text[:, position_after].copy(), logits, self.session.stats().cycles, all(going))
            position = position_after

    def generate(self, prompts, new_tokens):
        """The token ids behind each prompt: a list of `new_tokens` for each sequence."""
        texts = [list(map(int, prompt)) for prompt in prompts]
        rows = [[] for _ in texts]
        for step in self.stream(prompts, new_tokens):
            at = step.position + step.count
            for row, text, token in zip(rows, texts, step.tokens, strict=True):
                if at >= len(text) and len(row) < new_tokens:
                    row.append(int(token))
        return rows
