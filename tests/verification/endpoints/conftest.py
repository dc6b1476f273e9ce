import json
import queue
import threading

import pytest

from timbermark.verification.endpoints import courier, inquiry, retrying
from timbermark.verification.endpoints.delivery import Delivery


class NearDelivery(Delivery):
    """The same courier in a thread of this process: no second interpreter has to start."""

    def __init__(self, setting):
        self._jobs, self._replies = queue.Queue(), queue.Queue()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.history = self._exchange(setting)

    def _serve(self):
        courier.serve(_Lines(self._jobs), lambda said: self._replies.put(json.dumps(said)))
        self._replies.put("")

    def _say(self, said):
        self._jobs.put(json.dumps(said) + "\n")

    def _hear(self):
        return self._replies.get(timeout=60)

    def _close(self, wait):
        self._jobs.put("")
        self._thread.join(60)


class _Lines:
    def __init__(self, jobs):
        self.readline = jobs.get

    def __iter__(self):
        return iter(self.readline, "")


@pytest.fixture
def real_courier():
    """For the tests of processes."""


@pytest.fixture(autouse=True)
def impatient(request, monkeypatch):
    """Let every other test try again at once, and have its courier nearby."""
    monkeypatch.setattr(retrying, "FIRST_PAUSE", 0.01)
    if "real_courier" not in request.fixturenames:
        monkeypatch.setattr(inquiry, "Delivery", NearDelivery)
