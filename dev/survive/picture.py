"""The run as an SVG timeline. Every position and number in it was recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape

from dev.survive.story import CLIENT, HEARTBEAT_SECONDS, LEASE_SECONDS, A, B, Run, missed_ids

_TITLE = "A cut connection, a killed container, one whole answer"
_WIDTH, _HEIGHT = 900, 356
_LEFT, _RIGHT = 118, 868
_A, _B, _CLIENT = 112, 176, 248
"""The lanes: the middles of the containers' bands, and the foot of the client's ticks."""
_BAND = 14
_TICK, _TICK_MORE = 12.0, 2.4
"""The height of a token's tick, and what each further token adds that came in the same read."""
_NOTE = _CLIENT + 30
_AXIS = 304
_FOOT = 336

_STYLE = """
    svg { --card: #fff; --edge: #d1d9e0; --ink: #1f2328; --soft: #59636e; --grid: #eaeef2;
          --a: #0969da; --b: #1a7f37; --bad: #cf222e }
    @media (prefers-color-scheme: dark) {
      svg { --card: #0d1117; --edge: #3d444d; --ink: #f0f6fc; --soft: #9198a1; --grid: #1c222a;
            --a: #58a6ff; --b: #3fb950; --bad: #ff7b72 }
    }
    text { font: 12px system-ui, -apple-system, "Segoe UI", "Noto Sans", Arial, sans-serif;
           fill: var(--soft); stroke: var(--card); stroke-width: 4px; stroke-linejoin: round;
           paint-order: stroke }
    .head { font-size: 16px; font-weight: 600 } .head, .name, .ink { fill: var(--ink) }
    .name, .bold { font-weight: 600 }
    .small { font-size: 11px }
    .end { text-anchor: end } .middle { text-anchor: middle }
    .card { fill: var(--card); stroke: var(--edge) }
    .grid { stroke: var(--grid) }
    .a { --c: var(--a) } .b { --c: var(--b) } .bad { --c: var(--bad) } .soft { --c: var(--soft) }
    text.b, text.bad, tspan { fill: var(--c) }
    .band { fill: var(--c) } .commit { stroke: var(--card); stroke-width: 1.5 }
    .rest { fill: none; stroke: var(--c); stroke-dasharray: 3 3 }
    .line { fill: none; stroke: var(--c); stroke-width: 1.5 }
    .dashed { stroke-dasharray: 3 3 }
    .mark { fill: none; stroke: var(--c); stroke-width: 2.5; stroke-linecap: round }
    .void { opacity: .45 } .tip, .ping { fill: var(--c) }
"""


def draw(run: Run) -> str:
    """Draw it."""
    return _Picture(run).svg()


class _Picture:
    def __init__(self, run: Run) -> None:
        self._run = run
        client, seconds = run.client, run.clock.seconds
        (rewind,) = client.events("rewind")
        assert rewind.frame is not None
        self._rewind_id, self._rewind_to = rewind.frame.id, int(rewind.frame.data["to"])
        self._begun, self._resumed = (seconds(request.at) for request in client.requests)
        self._cut, self._killed = seconds(run.cut.at), seconds(run.killed_at)
        self._lapsed = seconds(run.lapsing.lapses_at)
        taken = next(one for one in run.commits if one.chunk.epoch > run.lapsing.epoch)
        self._taken, self._rewound = seconds(taken.at), seconds(rewind.at)
        self._done = seconds(client.received[-1].at)
        self._cursor = client.requests[-1].cursor
        self._missed = missed_ids(client)
        self._scale = (_RIGHT - _LEFT) / self._done

    def svg(self) -> str:
        """Return the document."""
        size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        named = 'role="img" aria-labelledby="title desc"'
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {named}>',
            f'  <title id="title">{escape(_TITLE)}</title>',
            f'  <desc id="desc">{escape(self._description())}</desc>',
            f"  <style>{_STYLE}  </style>",
            *(f"  {part}" for part in self._parts()),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _description(self) -> str:
        return (
            f"Timeline of one recorded run of {self._done:.1f} seconds. Container A streams a turn"
            f" to the client. At {self._cut:.1f} s the client's socket is cut after event"
            f" {self._cursor}. At {self._resumed:.1f} s it resumes at container B and gets events"
            f" {self._missed[0]} to {self._missed[-1]} at once. At {self._killed:.1f} s container A"
            f" is killed by SIGKILL; pings keep coming. At {self._lapsed:.1f} s its lease lapses,"
            f" at {self._taken:.1f} s container B takes it, sends rewind to event"
            f" {self._rewind_to}, tells the withdrawn words again and ends with done at"
            f" {self._done:.1f} s. The client's text against a replay of the journal:"
            f" {self._run.check}."
        )

    def _parts(self) -> Iterable[str]:
        yield (
            f'<rect class="card" x=".5" y=".5" width="{_WIDTH - 1}" height="{_HEIGHT - 1}" rx="8"/>'
        )
        yield _text(24, 34, _TITLE, "head")
        yield _text(
            24,
            54,
            "A recorded run: functions-framework processes on the official Firestore emulator,"
            f" lease {LEASE_SECONDS:g} s, pings within {HEARTBEAT_SECONDS:g} s.",
        )
        yield from self._axis()
        yield from self._container_a()
        yield from self._container_b()
        yield from self._client()
        yield from self._foot()

    def _axis(self) -> Iterable[str]:
        seconds = range(int(self._done) + 1)
        path = "".join(f"M{self._x(second)} 78V{_AXIS - 12}" for second in seconds)
        yield f'<path class="grid" d="{path}"/>'
        for second in seconds:
            label = f"{second} s" if second == 0 else str(second)
            yield _text(self._x(second), _AXIS + 1, label, "small middle")

    def _container_a(self) -> Iterable[str]:
        yield _text(24, _A + 4, A, "name")
        yield self._arrow(self._begun, _CLIENT, _A + _BAND / 2, "a")
        yield self._band(self._begun, self._killed, _A, "band a")
        yield self._band(self._killed, self._lapsed, _A, "rest soft")
        yield self._commits(self._run.lapsing.epoch, _A)
        yield _text(self._x(self._begun), _A - 14, "holds the lease, runs the agent")
        yield self._cross(self._killed, _A)
        yield _text(self._x(self._killed), _A - 14, "SIGKILL", "bad bold middle")
        yield _line(self._x(self._lapsed), _A - 9, self._x(self._lapsed), _B, "line dashed soft")
        yield _text(self._x(self._lapsed), _A - 14, "its lease lapses", "ink middle")

    def _container_b(self) -> Iterable[str]:
        yield _text(24, _B + 4, B, "name")
        yield self._arrow(self._resumed, _CLIENT, _B + 3, "soft")
        yield _line(self._x(self._resumed), _B, self._x(self._taken), _B, "line b")
        yield self._band(self._taken, self._done, _B, "band b")
        yield self._commits(self._run.lapsing.epoch + 1, _B)
        yield _text(self._x(self._resumed), _B - 14, "follows the journal")
        yield _text(self._x(self._taken) + 4, _B - 14, "takes the lease, runs the agent", "ink")
        yield self._arrow(self._rewound, _B + _BAND / 2, _CLIENT - 19, "b")

    def _client(self) -> Iterable[str]:
        yield _text(24, _CLIENT + 2, CLIENT, "name")
        y = _CLIENT + 3
        yield _line(self._x(self._begun), y, self._x(self._cut), y, "line soft")
        yield _line(self._x(self._resumed), y, self._x(self._done), y, "line soft")
        yield from self._ticks()
        for ping in self._run.client.events("ping"):
            at = self._x(self._run.clock.seconds(ping.at))
            yield f'<circle class="ping soft" cx="{at}" cy="{_CLIENT + 10}" r="2.2"/>'
        yield self._cross(self._cut, y)
        yield _text(self._x(self._cut) + 4, _NOTE, "cut inside an event", "bad bold end")
        yield _text(
            self._x(self._resumed) - 4,
            _NOTE,
            f"Last-Event-ID: {self._cursor} gives {self._missed[0]}–{self._missed[-1]} at once",
            "ink",
        )
        silence = (self._last_before_rewind() + self._rewound) / 2
        yield _text(self._x(silence), _CLIENT - 6, "pings keep coming", "middle")
        yield _text(
            self._x(self._rewound) - 4,
            _NOTE,
            f"rewind to event {self._rewind_to}: told again from there",
            "ink",
        )
        yield f'<circle class="tip b" cx="{self._x(self._done)}" cy="{y}" r="4.5"/>'
        yield _text(_RIGHT + 5, _NOTE, "done", "b bold end")

    def _ticks(self) -> Iterable[str]:
        """One tick for each read that gave tokens, by who made them and whether they stand."""
        reads: dict[str, Counter[float]] = {}
        for token in self._run.client.events("token"):
            assert token.frame is not None
            by_a = token.frame.id < self._rewind_id
            void = by_a and token.frame.id > self._rewind_to
            kind = f"line {'a' if by_a else 'b'}{' void' if void else ''}"
            reads.setdefault(kind, Counter())[self._run.clock.seconds(token.at)] += 1
        for kind, counted in reads.items():
            path = "".join(
                f"M{self._x(at)} {_CLIENT}v{-_TICK - _TICK_MORE * (count - 1):.4g}"
                for at, count in counted.items()
            )
            yield f'<path class="{kind}" d="{path}"/>'

    def _foot(self) -> Iterable[str]:
        mark, kind = ("✓", "b") if self._run.check.passed else ("✗", "bad")
        checked = f'<tspan class="{kind} bold">{mark} {self._run.check}</tspan>'
        words = "— the client’s text against a replay of the journal"
        yield f'<text x="24" y="{_FOOT}">{checked} {words}</text>'
        y = _FOOT - 4
        yield f'<path class="line a" d="M530 {y + 4}v-9m4 9v-9"/>'
        yield f'<path class="line b" d="M540 {y + 4}v-9m4 9v-9"/>'
        yield _text(551, _FOOT, "tokens", "small")
        yield f'<path class="line a void" d="M602 {y + 4}v-9m4 9v-9"/>'
        yield _text(613, _FOOT, "withdrawn later", "small")
        yield f'<circle class="ping soft" cx="711" cy="{y}" r="2.2"/>'
        yield _text(718, _FOOT, "ping", "small")
        yield f'<rect class="band a" x="756" y="{y - 5}" width="16" height="10" rx="2"/>'
        yield f'<path class="commit" d="M764 {y - 5}v10"/>'
        yield _text(778, _FOOT, "journal commits", "small")

    def _last_before_rewind(self) -> float:
        tokens = self._run.client.events("token")
        at = [self._run.clock.seconds(one.at) for one in tokens]
        return max(one for one in at if one < self._rewound)

    def _x(self, seconds: float) -> float:
        return round(_LEFT + seconds * self._scale, 1)

    def _band(self, begin: float, end: float, y: float, kind: str) -> str:
        width = round(self._x(end) - self._x(begin), 1)
        return (
            f'<rect class="{kind}" x="{self._x(begin)}" y="{y - _BAND / 2:g}" width="{width}"'
            f' height="{_BAND}" rx="2"/>'
        )

    def _commits(self, epoch: int, y: float) -> str:
        at = [self._run.clock.seconds(c.at) for c in self._run.commits if c.chunk.epoch == epoch]
        path = "".join(f"M{self._x(one)} {y - _BAND / 2:g}v{_BAND}" for one in at)
        return f'<path class="commit" d="{path}"/>'

    def _cross(self, at: float, y: float) -> str:
        return f'<path class="mark bad" d="M{self._x(at) - 5:g} {y - 5}l10 10m0-10l-10 10"/>'

    def _arrow(self, at: float, from_y: float, to_y: float, kind: str) -> str:
        x, step = self._x(at), 6 if to_y > from_y else -6
        return (
            f'<path class="line {kind}" d="M{x} {from_y:g}V{to_y - step:g}"/>'
            f'<path class="tip {kind}" d="M{x} {to_y:g}l-4 {-step}h8z"/>'
        )


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<path class="{kind}" d="M{x1} {y1}L{x2} {y2}"/>'
