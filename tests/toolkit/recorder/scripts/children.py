"""Children of every kind that compile a graph each, and end in their own ways. Run: children.py KIND [KIND ...]"""

import multiprocessing
import os
import subprocess
import sys
import threading

import torch

HERE = "import torch; torch.compile(lambda x: x.sin() + 5, backend='aot_eager')(torch.ones(3)); print('subprocess')"


def work(number, way="return"):
    torch.compile(lambda x: x.sin() + number, backend="aot_eager")(torch.ones(2))
    print(f"worked {number}", flush=True)
    if way == "raise":
        raise ValueError("a child broke")
    if way == "kill":
        os.kill(os.getpid(), 9)


def _child(method, *arguments):
    child = multiprocessing.get_context(method).Process(target=work, args=arguments)
    child.start()
    child.join()
    print(method, child.exitcode, flush=True)


def fork():
    _child("fork", 1)


def fork_raise():
    _child("fork", 2, "raise")


def forkserver():
    _child("forkserver", 3)


def spawn():
    _child("spawn", 4)


def spawn_kill():
    _child("spawn", 6, "kill")


def other_python():
    subprocess.run([sys.executable, "-c", HERE], check=True)


def threads():
    """Compiles at the same time in three threads, one of them nested in a compiled function's graph break."""
    workers = [threading.Thread(target=work, args=(10 + number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.tensor(float(index)) ** 2


def loader():
    """Workers that compile nothing leave no trace."""
    for batch in torch.utils.data.DataLoader(Squares(), batch_size=2, num_workers=2):
        print("batch", batch.sum().item(), flush=True)


if __name__ == "__main__":
    for kind in sys.argv[1:]:
        globals()[kind]()
    work(0)
