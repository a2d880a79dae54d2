"""Speed and behaviour of `revup serve` under load, beside `revup predict`, on this machine.

    python benchmarks/serve.py throughput      # 64 clients with single documents: batching, no batching, predict
    python benchmarks/serve.py latency         # the same clients at half of that rate
    python benchmarks/serve.py overload        # more than it can do: 429, memory
    python benchmarks/serve.py stop            # SIGTERM under load
    python benchmarks/serve.py soak --minutes 10
    python benchmarks/serve.py hostile --minutes 60 --rate 200     # behaving clients among misbehaving ones
    python benchmarks/serve.py start           # start-up of commands
    python benchmarks/serve.py stream          # `revup predict -`, line by line
    python benchmarks/serve.py spacy --pipeline en_core_web_sm --texts texts.txt.gz    # nlp.pipe with the component
    python benchmarks/serve.py all --pipeline en_core_web_sm --texts texts.txt.gz      # 15 minutes on 2 idle cores

The model has the sizes of `revup bench` (network small, 600 frames, 20,000 words) and random weights, which are as fast
as learned ones. Clients run in a process of their own on the same cores. What is compared takes turns, so that whatever
else runs on the machine slows all of it. Beside rates, the processor time of each request is given: it says what the
rates would be where nothing else runs. Results, and which of the required figures they reach, are written to
benchmarks/results/serve-COMMAND-DATE.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import input as input_benchmark
import torch

from revup.benchmark import RandomCorpus, Size, surroundings, trained
from revup.data.events import document_to_json, write

HERE = Path(__file__).parent
CLIENTS = 64
FLAT = 16  # MiB of growth that allocators and buffers explain
TICKS = os.sysconf("SC_CLK_TCK")


def spread(values: list[float]) -> dict[str, float]:
    """Median and range."""
    return {name: round(value, 4) for name, value in input_benchmark.spread(values).items()}


def growth(memory: list[float]) -> float:
    """MiB from the second quarter of a measurement to its last; the first is warm-up."""
    quarter = max(1, len(memory) // 4)
    return round(statistics.median(memory[-quarter:]) - statistics.median(memory[quarter : 2 * quarter] or memory), 1)


class Server:
    """`revup serve` as a process."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "revup", "serve", str(folder / "run"), "--port", "0", "--device", "cpu"]
        self.process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.port = int(self.process.stderr.readline().rsplit(":", 1)[1])
        while not self.is_ready():
            time.sleep(0.1)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def is_ready(self) -> bool:
        try:
            return bool(self.get("/health"))
        except OSError:
            assert self.process.poll() is None, "the server ended"
            return False

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self) -> float:
        """Resident MiB."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def metric(self, name: str) -> float:
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith(f"{name} ")]
        return float(lines[0].split()[1])

    def stop(self) -> int:
        """Send SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    server = Server(folder, *options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


def start_program(name: str, plan: dict[str, Any]) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(HERE / name), json.dumps(plan)], stdout=subprocess.PIPE, text=True)


def start_client(server: Server, file: Path, **plan: Any) -> subprocess.Popen[str]:
    return start_program("serve_client.py", {"port": server.port, "file": str(file), "clients": CLIENTS, **plan})


def load(server: Server, file: Path, **plan: Any) -> dict[str, Any]:
    """Send requests; what came back, with the server's processor time for each."""
    before, batches, documents = server.cpu(), *_batches(server)
    client = start_client(server, file, **plan)
    said, _ = client.communicate()
    found: dict[str, Any] = json.loads(said)
    after_batches, after_documents = _batches(server)
    answered = after_documents - documents
    found["server_cpu_ms"] = round(1000 * (server.cpu() - before) / max(1, answered), 4)
    found["documents_per_batch"] = round(answered / max(1, after_batches - batches), 1)
    found["load_average"] = round(os.getloadavg()[0], 2)
    return found


def _batches(server: Server) -> tuple[float, float]:
    return server.metric("revup_batch_documents_count"), server.metric("revup_batch_documents_sum")


def predict_rate(folder: Path, documents: int) -> dict[str, float]:
    """`revup predict` from file to file: documents a second after its start, and processor time for each."""

    def once(source: str) -> tuple[float, float]:
        begun, used = time.perf_counter(), os.times()
        command = [sys.executable, "-m", "revup", "predict", str(folder / "run"), str(folder / source), "--force"]
        subprocess.run([*command, "--out", str(folder / "out.jsonl"), "--device", "cpu"], check=True)
        after = os.times()
        cpu = after.children_user + after.children_system - used.children_user - used.children_system
        return time.perf_counter() - begun, cpu

    (start, start_cpu), (whole, cpu) = once("one.jsonl"), once("whole.jsonl")
    return {
        "per_second": round((documents - 1) / (whole - start), 1),
        "cpu_ms": round(1000 * (cpu - start_cpu) / (documents - 1), 4),
        "start_seconds": round(start, 2),
        "load_average": round(os.getloadavg()[0], 2),
    }


# ---- commands ----------------------------------------------------------------------------------------------------


def throughput(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Rounds of predict, the server with batching and without, in turn."""
    rounds: list[dict[str, Any]] = []
    file = folder / "requests.jsonl"
    with serving(folder) as batching, serving(folder, "--max-batch", "1") as single:
        for number in range(given.rounds):
            row = {
                "predict": predict_rate(folder, given.documents),
                "serve": load(batching, file, seconds=given.seconds, warm_up=2),
                "no_batching": load(single, file, seconds=given.seconds / 2, warm_up=2),
            }
            rounds.append(row)
            shares = row["serve"]["per_second"] / row["predict"]["per_second"]
            times = row["serve"]["per_second"] / row["no_batching"]["per_second"]
            print(f"  round {number + 1}: {_line(row)}; {shares:.2f} of predict, {times:.1f} times no batching")
    names = ("predict", "serve", "no_batching")
    return {
        "rounds": rounds,
        "documents_per_second": {name: spread([row[name]["per_second"] for row in rounds]) for name in names},
        "share_of_predict": spread([row["serve"]["per_second"] / row["predict"]["per_second"] for row in rounds]),
        "times_no_batching": spread([row["serve"]["per_second"] / row["no_batching"]["per_second"] for row in rounds]),
        "share_of_predict_by_processor_time": spread(
            [
                row["predict"]["cpu_ms"] / (row["serve"]["server_cpu_ms"] + row["serve"]["client_cpu_ms"])
                for row in rounds
            ]
        ),
        "times_no_batching_by_processor_time": spread(
            [row["no_batching"]["server_cpu_ms"] / row["serve"]["server_cpu_ms"] for row in rounds]
        ),
    }


def _line(row: dict[str, Any]) -> str:
    serve = row["serve"]
    return (
        f"predict {row['predict']['per_second']:,.0f}/s ({row['predict']['cpu_ms']:.2f} ms of processor each), "
        f"serve {serve['per_second']:,.0f}/s ({serve['server_cpu_ms']:.2f} + client {serve['client_cpu_ms']:.2f} ms, "
        f"{serve['documents_per_batch']:.0f} a batch), no batching {row['no_batching']['per_second']:,.0f}/s"
    )


def latency(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The rate of 64 busy clients, and the latency at half of it, in turn."""
    rounds = []
    with serving(folder) as server:
        for number in range(given.rounds):
            full = load(server, folder / "requests.jsonl", seconds=given.seconds, warm_up=2)
            half = load(
                server, folder / "requests.jsonl", seconds=given.seconds, warm_up=2, rate=full["per_second"] / 2
            )
            rounds.append({"full": full, "half": half})
            print(f"  round {number + 1}: {half['per_second']:,.0f}/s, {half['milliseconds']} ms", flush=True)
    found = {name: spread([row["half"]["milliseconds"][name] for row in rounds]) for name in ("p50", "p90", "p99")}
    return {"rounds": rounds, "milliseconds": found}


def overload(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """400 clients that do not wait, with a queue of 500 events: answers, refusals, memory over time."""
    with serving(folder, "--max-queue", "500", "--max-events", "500") as server:
        load(server, folder / "requests.jsonl", seconds=3)
        client = start_client(server, folder / "requests.jsonl", seconds=given.seconds * 2, clients=400, pause=0.01)
        memory = []
        while client.poll() is None:
            memory.append(round(server.memory(), 1))
            time.sleep(1)
        found: dict[str, Any] = json.loads(client.communicate()[0])
    print(f"  {found['statuses']}, memory {memory[0]} to {memory[-1]} MiB, p99 {found['milliseconds']['p99']} ms")
    return {**found, "memory_mib": memory, "growth_mib": growth(memory)}


def stop(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """SIGTERM while 64 clients are busy, several times: every request that was sent before is answered.

    The clients do not wait after a 503 but connect again at once until the port is closed; what is lost then is `late`.
    """
    rounds = []
    for number in range(given.rounds):
        server = Server(folder)
        client = start_client(server, folder / "requests.jsonl", seconds=30, until_refused=True, patience=10)
        time.sleep(3)
        begun = time.perf_counter()
        status = server.stop()
        took = time.perf_counter() - begun
        found = json.loads(client.communicate()[0])
        row = {
            "exit_status": status,
            "stop_seconds": round(took, 2),
            "statuses": found["statuses"],
            "cut": found["cut"],
            "late": found["late"],
        }
        rounds.append(row)
        print(f"  round {number + 1}: {row}", flush=True)
    return {"rounds": rounds, "cut": sum(row["cut"] for row in rounds)}


def soak(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Full load for minutes: errors and memory."""
    with serving(folder) as server:
        load(server, folder / "requests.jsonl", seconds=5)
        client = start_client(server, folder / "requests.jsonl", seconds=60 * given.minutes)
        memory = watch(server, client, given.minutes)
        found: dict[str, Any] = json.loads(client.communicate()[0])
    print(f"  {found['statuses']}, cut {found['cut']}, memory {memory[0]} to {memory[-1]} MiB")
    return {**found, "memory_mib": memory, "growth_mib": growth(memory)}


def watch(server: Server, client: subprocess.Popen[str], minutes: float) -> list[float]:
    """The server's memory while a client runs, up to 360 times."""
    memory = []
    while client.poll() is None:
        memory.append(round(server.memory(), 1))
        time.sleep(max(1.0, minutes / 6))
    return memory


def hostile(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Clients that behave, at a rate, among others that do not (serve_hostile.py): answers, refusals, memory."""
    seconds = 60 * given.minutes
    with serving(folder, "--timeout", "5") as server:
        load(server, folder / "requests.jsonl", seconds=5)
        enemies = start_program("serve_hostile.py", {"port": server.port, "seconds": seconds, "seed": 1})
        client = start_client(server, folder / "requests.jsonl", seconds=seconds, rate=given.rate)
        memory = watch(server, client, given.minutes)
        found: dict[str, Any] = json.loads(client.communicate()[0])
        against = json.loads(enemies.communicate()[0])
        time.sleep(6)  # in which those that are slow are cut off
        left = server.metric("revup_requests_in_progress") - 1  # this question
        status = server.stop()
        assert server.process.stderr is not None
        logged = [line for line in server.process.stderr.read().splitlines() if not line.endswith("ready")]
    print(f"  {found['statuses']}, cut {found['cut']}, {against}, memory {memory[0]} to {memory[-1]} MiB")
    return {
        **found,
        "rate": given.rate,
        "misbehaving": against,
        "left_in_progress": left,
        "exit_status": status,
        "logged": logged[:20],
        "memory_mib": memory,
        "growth_mib": growth(memory),
    }


def start(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Seconds of `revup --help` and of `revup predict` with one document."""
    commands = {
        "help": ["--help"],
        "predict": ["predict", str(folder / "run"), str(folder / "one.jsonl"), "--device", "cpu"],
    }
    found: dict[str, Any] = {}
    for name, arguments in commands.items():
        times, processor = [], []
        for _ in range(2 * given.rounds + 1):
            begun, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "revup", *arguments]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times.append(round(time.perf_counter() - begun, 3))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processor.append(round(after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime, 3))
        found[name] = {"seconds": spread(times), "processor_seconds": spread(processor)}
        print(f"  {name}: {statistics.median(times):.3f} s ({min(times):.3f} to {max(times):.3f})", flush=True)
    return found


def stream(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """`revup predict -` beside a file: benchmarks/input.py."""
    return input_benchmark.stream(folder / "run", argparse.Namespace(documents=3000, rounds=given.rounds))


def spacy(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """`nlp.pipe` with the component and without it: benchmarks/input.py."""
    options = {"documents": 300, "rounds": given.rounds, "pipeline": given.pipeline, "texts": given.texts}
    return input_benchmark.spacy_component(folder / "run", argparse.Namespace(**options))


COMMANDS = {
    "throughput": throughput,
    "latency": latency,
    "overload": overload,
    "stop": stop,
    "start": start,
    "stream": stream,
    "spacy": spacy,
    "soak": soak,
    "hostile": hostile,
}


def required(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What the server should reach, beside what was measured; only of what was measured."""
    rows: list[dict[str, Any]] = []

    def row(asked: str, measured: Any, met: bool) -> None:
        rows.append({"asked": asked, "measured": measured, "met": met})

    if rates := found.get("throughput"):
        for name, label, least in (
            ("share_of_predict", "share of predict's rate, file to file: at least 0.7", 0.7),
            ("times_no_batching", "times the rate without batching: at least 3", 3.0),
        ):
            for suffix in ("", "_by_processor_time"):
                figure = rates[name + suffix]
                row(label + suffix.replace("_", " "), figure, figure["median"] >= least)
    if times := found.get("latency"):
        figure = times["milliseconds"]["p99"]
        row("99% of answers at half of that load within: 50 ms", figure, figure["median"] <= 50)
    if many := found.get("overload"):
        only = set(map(int, many["statuses"])) <= {200, 429} and 429 in map(int, many["statuses"])
        row("overload: answers and 429 alone", many["statuses"], only and not many["cut"])
        row("overload: memory flat (growth in MiB)", many["growth_mib"], many["growth_mib"] < FLAT)
    if ends := found.get("stop"):
        row("SIGTERM under load: accepted requests that failed: 0", ends["cut"], ends["cut"] == 0)
    if long := found.get("soak"):
        minutes = round(long["seconds"] / 60, 1)
        row(f"{minutes} minutes of load: answers alone", long["statuses"], set(map(int, long["statuses"])) == {200})
        row(f"{minutes} minutes of load: memory flat (growth in MiB)", long["growth_mib"], long["growth_mib"] < FLAT)
    if among := found.get("hostile"):
        minutes = round(among["seconds"] / 60, 1)
        only = set(map(int, among["statuses"])) == {200} and not among["cut"]
        row(f"{minutes} minutes among misbehaving clients: answers alone", among["statuses"], only)
        row(
            "the right refusal for each of these",
            among["misbehaving"]["unexpected"],
            not among["misbehaving"]["unexpected"],
        )
        row(
            "no internal error is logged, no request is left",
            among["logged"],
            not among["logged"] and not among["left_in_progress"],
        )
        row("memory flat (growth in MiB)", among["growth_mib"], among["growth_mib"] < FLAT)
    if first := found.get("start"):
        for name, most in (("help", 0.1), ("predict", 2.0)):
            for kind in ("seconds", "processor_seconds"):
                figure = first[name][kind]
                row(f"start of {name}, {kind.replace('_', ' ')}: under {most:g}", figure, figure["median"] < most)
    if lines := found.get("stream"):
        share = lines["idle_answer_ms"]["within_100_ms"]
        row("predict -: share of lone documents answered within 100 ms: all", share, share == 1)
    if piped := found.get("spacy"):
        for name in ("ratio", "ratio_of_processor_time"):
            figure = piped[name]
            row(
                f"nlp.pipe beside the parser alone, {name.replace('_', ' ')}: at least 0.9",
                figure,
                figure["median"] >= 0.9,
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=(*COMMANDS, "all"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6, help="of each measurement")
    parser.add_argument("--minutes", type=float, default=10, help="of the soak, and among misbehaving clients")
    parser.add_argument("--rate", type=float, default=200, help="requests a second among misbehaving clients")
    parser.add_argument("--documents", type=int, default=6000, help="that predict labels")
    parser.add_argument("--pipeline", help="spacy: a pipeline with tagger and parser")
    parser.add_argument("--texts", help="spacy: texts, one a line, .gz")
    parser.add_argument("--out", type=Path, help="where to write the results")
    given = parser.parse_args()
    has_texts = given.pipeline is not None and given.texts is not None
    if given.command == "spacy" and not has_texts:
        parser.error("spacy needs --pipeline and --texts")
    every = [name for name in COMMANDS if name != "hostile" and (name != "spacy" or has_texts)]
    names = every if given.command == "all" else [given.command]
    size = Size()
    around = surroundings(torch.device("cpu"))
    target = given.out or HERE / "results" / f"serve-{given.command}-{around['date']}.json"
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        corpus = RandomCorpus(size, given.documents)
        trained(corpus, size, torch.device("cpu")).save(folder / "run")
        write(corpus.documents(), folder / "whole.jsonl")
        write([next(corpus.documents())], folder / "one.jsonl")
        bodies = ({"documents": [document_to_json(document)], "top": 5} for document in corpus.documents())
        (folder / "requests.jsonl").write_text("".join(json.dumps(body) + "\n" for body in bodies))
        for name in names:
            print(name, flush=True)
            before = os.getloadavg()
            found[name] = COMMANDS[name](folder, given)
            found[name]["load_averages"] = {"before": before, "after": os.getloadavg()}
            whole = {"benchmark": f"serve {given.command}", **around, "clients": CLIENTS, "required": required(found)}
            target.write_text(json.dumps({**whole, **found}, indent=1) + "\n")  # after each part: none is lost
    for each in required(found):
        print(f"{'met   ' if each['met'] else 'MISSED'} {each['asked']}: {each['measured']}")


if __name__ == "__main__":
    main()
