"""Processes that must not outlive the script that started them: what lab and peers share."""

import ctypes
import os
import signal
import time

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def _prctl(option, value):
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def adopt_orphans():
    """What a child starts and abandons becomes a child of this process, so that `descendants` finds it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent():
    """For a child, before it becomes its program: a parent killed by SIGKILL cannot end it."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def descendants(pid=None):
    """Processes below that one (this one, when not given), at any depth."""
    pid = pid or os.getpid()
    found = set()
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as children:
                for child in map(int, children.read().split()):
                    found |= {child} | descendants(child)
    except OSError:
        pass  # it ended meanwhile
    return found


def end_all(find, patience=1.0):
    """Ends the processes that `find` gives until it gives none: asks first, and kills what stays so many seconds later."""
    for number, seconds in [(signal.SIGTERM, patience), (signal.SIGKILL, 5.0)]:
        deadline = time.monotonic() + seconds
        told = set()
        while pids := find():
            for pid in pids - told:
                try:
                    os.kill(pid, number)
                    os.kill(pid, signal.SIGCONT)  # a stopped process only hears SIGKILL
                except ProcessLookupError:
                    pass
            told |= pids
            _reap()
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)


def _reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
