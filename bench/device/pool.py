"""bench/device/pool.py -- N processes of peers.py that take cells from one list: PyTorch's compiler is one thread for most of its time. A process
that dies of a cell (a crash, its limit, memory, a dead context) costs that cell, which gets a result that says so, and another goes on."""
import ctypes
import json
import os
import signal
import subprocess
import sys
import time

AGAIN = 76  # exit code of a worker whose place another takes: the device's context is dead
STARTS = 3  # of workers that end without a cell, after which none is started


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def caller_lives():
    """bench/gpu.sh, which started this, says its number: who kills it wants an end."""
    try:
        os.kill(int(os.environ.get("NNC_GPU_PID") or os.getpid()), 0)
        return True
    except (OSError, ValueError):
        return False


def why_of(code):
    if code == -signal.SIGALRM:
        return "took longer than its limit"
    if code == -signal.SIGKILL:
        return "killed, or memory ran out (signal 9)"
    return f"crashed (signal {-code})" if code < 0 else f"the program ended with exit code {code}"


def begun_by(out, pid):
    """Names of the results that a process was at."""
    found = []
    for name in os.listdir(out):
        if name.endswith(".running"):
            try:
                with open(os.path.join(out, name)) as f:
                    if f.read().strip() == str(pid):
                        found.append(name[:-len(".running")])
            except OSError:
                pass
    return found


def bury(out, pid, code):
    """Writes why results are none; returns how many."""
    names = begun_by(out, pid)
    for name in names:
        base, _, cell = name.partition(",")
        with open(os.path.join(out, name + ".new"), "w") as f:
            json.dump({"id": name, "cell": cell, "base": base, "failed": why_of(code)}, f)
        os.replace(os.path.join(out, name + ".new"), os.path.join(out, name + ".json"))
        os.unlink(os.path.join(out, name + ".running"))
        print(f"{name}: {why_of(code)}", file=sys.stderr, flush=True)
    return len(names)


class Pool:
    def __init__(self, n, command, out, end):
        self.command, self.out, self.end = command, out, end
        self.code, self.bad = 0, 0
        self.worker = {k: self.start(k, n) for k in range(n)}

    def start(self, k, n):
        threads = str(max(1, (os.cpu_count() or 1) * 3 // 4 // n))
        env = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": threads, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads)}
        return subprocess.Popen([*self.command, f"--worker={k}"], env=env, preexec_fn=die_with_parent)

    def ended(self, k, code, n):
        """One of the workers ended: is another to take its place?"""
        died = code not in (0, 1, 75)
        buried = bury(self.out, self.worker[k].pid, code) if died else 0
        if code == 75 or not died:
            self.code = max(self.code, code)
        else:
            self.code = max(self.code, 0 if code == AGAIN else 1)
        if died and not buried and code != AGAIN:
            self.bad += 1
        if died and self.bad < STARTS and time.monotonic() < self.end:
            self.worker[k] = self.start(k, n)
        else:
            del self.worker[k]

    def stop(self):
        for p in self.worker.values():
            p.kill()
            p.wait()
            for name in begun_by(self.out, p.pid):  # its time was up: another run may do it
                os.unlink(os.path.join(self.out, name + ".running"))

    def run(self, grace=20):
        n = len(self.worker)
        while self.worker:
            time.sleep(0.1)
            if time.monotonic() > self.end + grace or not caller_lives():
                self.stop()
                return 75
            for k, code in [(k, p.poll()) for k, p in self.worker.items()]:
                if code is not None:
                    self.ended(k, code, n)
        return self.code


def manage(n, command, out, end):
    """Exit code: 0, 1 failures, 75 time was up."""
    pool = Pool(n, command, out, end)

    def stop(*_):
        pool.stop()
        os._exit(75)
    signal.signal(signal.SIGTERM, stop)
    return pool.run()
