"""Sends prompts to a backend after it was loaded, so that the experts for them are in memory before anybody asks; as the config says.

A user comes first: what runs is cancelled, and no other is sent, as soon as somebody else asks anything.
"""

from __future__ import annotations

import logging
import selectors

from moetuned.daemon.loop import Loop
from moetuned.daemon.settings import Settings
from moetuned.daemon.watched import Watched
from moetuned.daemon.workers import Lane, Workers
from moetuned.decide.prompt_warmup import PromptEnd, PromptSettings, PromptSight, PromptWarmup, begin, step
from moetuned.host.processes import ProcessIdentity
from moetuned.host.prompt_files import OFF, load_prompts
from moetuned.host.prompt_sender import PromptRequest, send_prompt
from moetuned.parse.config_problem import ConfigError

log = logging.getLogger(__name__)


class _Run:
    """A warm-up of one load."""

    def __init__(self, process: ProcessIdentity) -> None:
        self.process = process
        self.prompts: tuple[str, ...] | None = None
        self.state: PromptWarmup | None = None
        self.request: PromptRequest | None = None
        self.descriptor = -1
        self.ended: PromptEnd | None = None


class Prompting:
    """For all backends; belongs to the loop's thread."""

    def __init__(self, loop: Loop, workers: Workers) -> None:
        self._loop = loop
        self._workers = workers
        self._runs: dict[str, _Run] = {}

    def want(self, watched: Watched, settings: Settings) -> None:
        """The backend was loaded: send prompts once it is warm."""
        self.end(watched)
        if settings.prompts == OFF or watched.process is None:
            return
        run = self._runs[watched.key] = _Run(watched.process)

        def done(prompts: tuple[str, ...] | None, error: BaseException | None) -> None:
            if prompts is None:
                said = error.problems[0] if isinstance(error, ConfigError) else error
                watched.prompting = f"no prompts are sent: {said}"
                log.warning("%s: %s", watched.name, watched.prompting)
            run.prompts = prompts or ()

        choice = settings.prompts
        self._workers.submit(Lane.WORK, f"reading the prompts for {watched.key}", lambda: load_prompts(choice), done)

    def tick(self, watched: Watched, settings: Settings, now: float) -> None:
        """Send the next, cancel what must not go on."""
        run = self._runs.get(watched.key)
        if run is None or run.prompts is None:
            return
        if watched.process != run.process or not run.prompts or settings.prompts == OFF:
            self.end(watched)
            return
        if run.state is None:
            run.state = begin(len(run.prompts), now)
        if run.request is not None and run.ended is None:
            run.ended = run.request.advance()
        ended, run.ended = run.ended, None
        if ended is not None:
            self._close(run)
        bounds = PromptSettings(total_seconds=settings.prompts_seconds)
        decided = step(run.state, _sight(watched), now, ended, bounds)
        run.state, watched.prompting = decided.state, decided.detail
        if decided.cancel:
            self._close(run)
        if decided.send is not None:
            self._send(watched, run, run.prompts[decided.send], bounds.predict_tokens)
        if run.state.outcome is not None:
            log.info("%s: prompts: %s", watched.name, run.state.outcome)
            self._close(run)
            del self._runs[watched.key]

    def end(self, watched: Watched) -> None:
        """Send no more, and cancel what runs."""
        run = self._runs.pop(watched.key, None)
        if run is not None:
            self._close(run)
            watched.prompting = None

    def _send(self, watched: Watched, run: _Run, prompt: str, predict_tokens: int) -> None:
        if watched.url is None:
            run.ended = PromptEnd(error="the backend's address is not known")
            return
        sent = send_prompt(watched.url, prompt, predict_tokens)
        if isinstance(sent, PromptEnd):
            run.ended = sent
            return
        run.request, run.descriptor = sent, sent.fileno()
        self._loop.add(run.descriptor, selectors.EVENT_READ, lambda _events: self._follow(run, sent))

    def _follow(self, run: _Run, request: PromptRequest) -> None:
        ended = request.advance()
        if ended is not None and run.request is request:
            run.ended = ended
            self._loop.remove(run.descriptor)
            run.descriptor = -1

    def _close(self, run: _Run) -> None:
        if run.request is None:
            return
        if run.descriptor >= 0:
            self._loop.remove(run.descriptor)
            run.descriptor = -1
        run.request.cancel()
        run.request = None


def _sight(watched: Watched) -> PromptSight:
    verdict = watched.verdict
    warming = watched.warm_wanted is not None or watched.warm.going_on
    http = None if watched.sample is None else watched.sample.http
    busy = "its model is being warmed" if warming else None
    return PromptSight(verdict.phase, verdict.paging, verdict.memory, http, watched.http_at, busy)
