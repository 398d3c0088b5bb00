"""Asks retryledger's breakers before each request to a provider. Needs nothing but Python.

    breakers = Breakers()                       # follows the collector in the background
    if breakers.allow("openai"):
        ...                                     # send the request
    else:
        ...                                     # use another provider, wait, or give up

It never stands in the way: without a collector, or without recent data, every request is allowed. Run as a program it
prints what the breakers do:

    python3 client.py --server http://127.0.0.1:4320
"""
import argparse
import http.client
import json
import os
import socket
import threading
import urllib.parse
from typing import Callable

DEFAULT_SERVER = "http://127.0.0.1:4320"


class Breakers:
    """The breakers of all providers, as the collector last said."""

    def __init__(self, server: str | None = None, token: str | None = None, *, silence: float = 15, probe_timeout: float = 0.5,
                 changed: Callable[[dict], None] | None = None):
        """silence is how many seconds without a word from the collector, which sends one every 5, mean that it is away;
        probe_timeout how long to wait for its leave; changed is called with each breaker whenever something is said of it."""
        url = urllib.parse.urlsplit(server or os.environ.get("RETRYLEDGER_SERVER") or DEFAULT_SERVER)
        self._connect = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._host, self._path = url.netloc, url.path.rstrip("/") + "/api/v1/breakers"
        token = token or os.environ.get("RETRYLEDGER_TOKEN")
        self._headers = {"Authorization": "Bearer " + token} if token else {}
        self._silence, self._probe_timeout, self._changed = silence, probe_timeout, changed
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._known: dict[str, dict] = {}  # empty while the collector is away
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._follow, name="retryledger-breakers", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Breakers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops following."""
        self._stopped.set()
        with self._lock:
            sock = self._socket
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended already
        self._thread.join()

    def state(self, provider: str) -> str:
        """closed, open or half_open; closed where nothing is known."""
        with self._lock:
            return self._known.get(provider, {}).get("state", "closed")

    def allow(self, provider: str) -> bool:
        """Tells whether a request may go now. It asks the collector only while the breaker is half-open, when few may go."""
        state = self.state(provider)
        if state == "half_open":
            return self._granted(provider)
        return state != "open"

    def _granted(self, provider: str) -> bool:
        connection = self._connect(self._host, timeout=self._probe_timeout)
        try:
            connection.request("POST", f"{self._path}/{urllib.parse.quote(provider, safe='')}/probe", headers=self._headers)
            response = connection.getresponse()
            return response.status != 200 or bool(json.load(response)["granted"])
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return True  # an absent collector stops no request
        finally:
            connection.close()

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                self._stream()
            except Exception:  # whatever answers there: without this thread an open breaker would stay open
                pass
            with self._lock:
                self._known, self._socket = {}, None
            self._stopped.wait(1)

    def _stream(self) -> None:
        connection = self._connect(self._host, timeout=self._silence)
        try:
            connection.connect()
            with self._lock:
                self._socket = connection.sock
            if self._stopped.is_set():
                return
            connection.request("GET", self._path + "/stream", headers=self._headers | {"Accept": "text/event-stream"})
            response = connection.getresponse()
            if response.status != 200:
                return
            event: dict[str, str] = {}
            while line := response.readline():
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name:
                    event[name] = value
                else:
                    self._hear(event)
                    event = {}
        finally:
            connection.close()

    def _hear(self, event: dict[str, str]) -> None:
        said: list[dict] = []
        with self._lock:
            if event.get("event") == "state":
                said = json.loads(event["data"])["breakers"]
                self._known = {breaker["provider"]: breaker for breaker in said}
            elif event.get("event") == "transition":
                said = [json.loads(event["data"])["breaker"]]
                self._known[said[0]["provider"]] = said[0]
        for breaker in said:
            if self._changed:
                self._changed(breaker)


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints what the breakers of a collector do.")
    parser.add_argument("--server", help=f"the collector's API (default $RETRYLEDGER_SERVER, else {DEFAULT_SERVER})")

    def show(breaker: dict) -> None:
        stale = " (stale)" if breaker["stale"] else ""
        print(f"{breaker['provider']} is {breaker['state']}{stale} since {breaker['since']}: {breaker['why']}", flush=True)

    with Breakers(parser.parse_args().server, changed=show):
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
