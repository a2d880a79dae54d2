"""What a server accepts and how it waits. Every limit is an option of `revup serve`."""

from __future__ import annotations

from dataclasses import dataclass

from revup.fields import check, setting

MIB = 2**20
BODIES = 4  # bodies of the largest size that are held at once; beyond them a request is answered 429
LARGEST_HEAD = 64 * 1024  # bytes of a request line and its headers
MOST_DISCARDED = 64 * MIB  # bytes that are read and dropped after a refusal, so that the client gets to read it
LAST_WORDS = 2.0  # seconds in which a client reads why what it sent is no request
GRACE = 0.5  # seconds of answering 503 before a server that shuts down closes its port
LAST = 0.1  # seconds after that in which requests on open connections are still read, and answered 503
OTHER_FILES = 256  # open files beside connections
KEEP_ALIVE = 60  # seconds that an idle connection is kept
FRAMES_LISTED = 20  # frames in an answer, for each event that a request may have
NUMBERS_LISTED = 512  # numbers of vectors in an answer, for each event that a request may have


@dataclass(frozen=True)
class Limits:
    """Limits of a server."""

    max_body: float = setting(8.0, "largest body of a request, in MiB", above=0, maximum=1024)
    max_documents: int = setting(1000, "most documents in a request", minimum=1)
    max_events: int = setting(10_000, "most events in a request", minimum=1)
    max_text: int = setting(100_000, "most characters in a text", minimum=1, maximum=1_000_000)
    max_queue: int = setting(20_000, "most events that wait; requests beyond are answered 429", minimum=1)
    max_connections: int = setting(1000, "most open connections; requests on others are answered 429", minimum=1)
    max_batch: int = setting(128, "most documents computed together; 1 turns batching off", minimum=1)
    window: float = setting(
        100.0, "longest wait for more documents to compute together, in milliseconds", minimum=0, maximum=1000
    )
    timeout: float = setting(30.0, "seconds to wait for a request, and for its answer", above=0, maximum=3600)

    def __post_init__(self) -> None:
        check(self)

    @property
    def body_bytes(self) -> int:
        """The largest body in bytes."""
        return int(self.max_body * MIB)
