"""SmolLM2 chat model in this process, through llama.cpp."""

import asyncio
import secrets
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from contexture.adapters.installed_packages import import_native, verify_sha256
from contexture.adapters.llm import smollm2
from contexture.errors import ContextError, SourceUnavailable
from contexture.types import Message

_llama: Any = import_native("xllamacpp", feature="the local model", extra="local")

CONTEXT_TOKENS = 8_192
"""Context window: maximum tokens of prompt and answer together."""

_SILENT_VERBOSITY = -1
_END_OF_STREAM = object()


class LocalModel:
    """SmolLM2 with 135 million parameters, on one thread, offline.

    The weights are verified and loaded on first use, in a thread. One answer is generated at a time; other callers
    wait. Cancelling a caller stops its answer. Equal prompts give equal answers. Messages are encoded here, so that no
    text of a prompt becomes a control token.
    """

    def __init__(self) -> None:
        self._weights = smollm2.find_weights()
        self._turn = asyncio.Lock()
        self._server: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def name(self) -> str:
        """Name of the model."""
        return smollm2.NAME

    async def complete(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return the whole answer."""
        return "".join([piece async for piece in self.stream(messages, max_tokens=max_tokens)])

    async def stream(self, messages: Sequence[Message], *, max_tokens: int) -> AsyncIterator[str]:
        """Yield the answer token by token."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[Any] = asyncio.Queue()
        left = threading.Event()

        def hand_over(piece: object) -> bool:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)
            return left.is_set()

        request = {"max_tokens": max_tokens, "temperature": 0.0, "stream": True}
        await self._turn.acquire()
        work = loop.run_in_executor(None, self._generate, list(messages), request, hand_over, left)
        # Released when the engine is free again, which may be after the caller was cancelled.
        work.add_done_callback(lambda _: self._turn.release())
        try:
            while (piece := await pieces.get()) is not _END_OF_STREAM:
                if isinstance(piece, ContextError):
                    raise piece
                yield piece
        finally:
            left.set()

    def close(self) -> None:
        """Free the model's memory; the next call loads it again."""
        self._server = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _generate(
        self,
        messages: Sequence[Message],
        request: dict[str, Any],
        hand_over: Callable[[object], bool],
        left: threading.Event,
    ) -> None:
        def show(chunk: dict[str, Any]) -> bool:
            return hand_over(_chunk_text(chunk))

        try:
            if not left.is_set():
                prompt = smollm2.load_tokenizer().encode_chat(messages)
                self._load_server().handle_completions({**request, "prompt": prompt}, show)
        except ContextError as failure:
            hand_over(failure)
        except (RuntimeError, ValueError) as failure:
            hand_over(SourceUnavailable(f"the local model failed: {failure}"))
        finally:
            hand_over(_END_OF_STREAM)

    def _load_server(self) -> Any:
        if self._server is None:
            path = verify_sha256(self._weights, smollm2.SHA256)
            self._folder = tempfile.TemporaryDirectory(prefix="contexture-llm-")
            self._server = _llama.Server(_server_parameters(path, Path(self._folder.name)))
        return self._server


def _server_parameters(weights: Path, folder: Path) -> Any:
    found: Any = _llama.CommonParams()
    found.model.path = str(weights)
    found.n_ctx = CONTEXT_TOKENS
    found.n_parallel = 1
    found.cpuparams.n_threads = found.cpuparams_batch.n_threads = 1
    found.verbosity = _SILENT_VERBOSITY
    found.offline = True
    found.ui = False
    # The engine always listens: on a socket that only this user can reach, with a random API key.
    found.hostnames = [str(folder / "llm.sock")]  # the extension makes it a Unix socket
    found.api_keys = [secrets.token_hex(32)]
    found.n_threads_http = 1
    return found


def _chunk_text(chunk: dict[str, Any]) -> str | ContextError:
    if "error" in chunk:
        return SourceUnavailable(f"the local model refused: {chunk['error'].get('message', chunk['error'])}")
    return str(chunk["choices"][0].get("text") or "")
