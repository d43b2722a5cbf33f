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


@contextlib.contextmanager
def compiling(turn, wait):
    """While PyTorch's compiler works: its own runs are alone on the GPU. Afterwards nothing of it is left in what was compiled. Yields a list
    with the number of such runs."""
    runs = [0]
    try:
        from torch._inductor.output_code import CompiledFxGraph
        from torch._inductor.runtime.benchmarking import benchmarker
        run = CompiledFxGraph.__call__
        clocks = {name: getattr(benchmarker, name) for name in ("benchmark_gpu", "benchmark_gpu_with_cuda_graph") if hasattr(benchmarker, name)}
    except (ImportError, AttributeError):  # of another version: all of it
        with turn:
            yield runs
        return

    def first_run(self, *args, **more):
        with turn:
            runs[0] += 1
            y = run(self, *args, **more)
            wait()
            return y

    def alone(clock):
        def timed(*args, **more):
            with turn:
                runs[0] += 1
                return clock(*args, **more)
        return timed
    CompiledFxGraph.__call__ = first_run
    for name, clock in clocks.items():
        setattr(benchmarker, name, alone(clock))
    try:
        yield runs
    finally:
        CompiledFxGraph.__call__ = run
        for name in clocks:
            delattr(benchmarker, name)  # the class's own again
