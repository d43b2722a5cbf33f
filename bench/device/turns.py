"""bench/device/turns.py -- processes that share a GPU and a machine's CPUs while some of them are timed.

The GPU: whoever times something holds the lock of a file alone (flock; bench_device does the same, turn.c). PyTorch's compiler takes it for the runs
that it makes: kernels among which it chooses by time, constants, a program's first run. Waiting does not count towards a result's limit.

The CPUs: those who compile keep off a quarter of the cores, on which they measure in turn."""
import contextlib
import fcntl
import os
import signal
import threading

FEWEST = 8  # CPUs that are worth dividing


class Turn:
    """with turn: alone on the GPU. Nested uses do nothing more."""

    def __init__(self, path):
        self.file = open(path, "a") if path else None
        self.depth, self.owner = 0, None

    def __enter__(self):
        if self.file and not (self.depth and self.owner == threading.get_ident()):
            left = signal.alarm(0)
            fcntl.flock(self.file, fcntl.LOCK_EX)
            signal.alarm(left)
            self.owner = threading.get_ident()
        self.depth += 1
        return self

    def __exit__(self, *_):
        self.depth -= 1
        if self.file and not self.depth:
            self.owner = None
            fcntl.flock(self.file, fcntl.LOCK_UN)


def number_list(text):
    """CPUs of "0-3,8"."""
    out = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        out |= set(range(int(first), int(last or first) + 1))
    return out


class Cores:
    """Which CPUs this process uses: `others` while it compiles, `quiet` while it measures. Of a small machine all, always."""

    def __init__(self):
        every = os.sched_getaffinity(0)
        self.quiet = self.others = every
        if len(every) < FEWEST:
            return
        quiet = set()
        for cpu in sorted(every):
            if len(quiet) < len(every) // 4:
                quiet |= self.siblings(cpu) & every
        self.quiet, self.others = quiet, every - quiet

    @staticmethod
    def siblings(cpu):
        """Threads of one core."""
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as f:
                return number_list(f.read()) | {cpu}
        except (OSError, ValueError):
            return {cpu}

    def use(self, cpus):
        for task in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError):  # a thread that has ended
                os.sched_setaffinity(int(task), cpus)

    @contextlib.contextmanager
    def measuring(self):
        self.use(self.quiet)
        try:
            yield
        finally:
            self.use(self.others)


def calls_on_gpu():
    """(object, name) of what PyTorch's compiler calls to use the GPU: a program's runs; the clock of kernels among which it chooses; all choices
    of one op, which otherwise wait for the GPU one by one. Empty for versions that have other names."""
    try:
        from torch._inductor.output_code import CompiledFxGraph
        from torch._inductor.runtime.benchmarking import benchmarker
        from torch._inductor.select_algorithm import AlgorithmSelectorCache
    except ImportError:
        return []
    found = [(CompiledFxGraph, "__call__"), (benchmarker, "benchmark_gpu"), (benchmarker, "benchmark_gpu_with_cuda_graph"),
             (AlgorithmSelectorCache, "benchmark_choices")]
    return [f for f in found if hasattr(*f)]


@contextlib.contextmanager
def compiling(turn, wait):
    """While PyTorch's compiler works: its own runs are alone on the GPU. Afterwards nothing of it is left in what was compiled. Yields a list
    with the number of such runs."""
    runs, calls, before = [0], calls_on_gpu(), []

    def alone(call):
        def when_alone(*args, **more):
            with turn:
                runs[0] += 1
                y = call(*args, **more)
                wait()
                return y
        return when_alone

    def put_back():
        for of, name, old in before:
            delattr(of, name) if old is None else setattr(of, name, old)
    if not calls:
        with turn:
            yield runs
        return
    for of, name in calls:
        old = vars(of).get(name)  # None: an instance has its class's
        before.append((of, name, old))
        setattr(of, name, staticmethod(alone(getattr(of, name))) if isinstance(old, classmethod) else alone(getattr(of, name)))
    try:
        yield runs
    finally:
        put_back()
