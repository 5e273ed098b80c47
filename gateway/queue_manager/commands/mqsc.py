"""Carries out MQSC commands: those of `mqgate mqsc`, of the API and of the file of objects in the settings.

The answers are lines as runmqsc prints them, with its message numbers, so that scripts that look for them keep working.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.queue_manager.commands.display_rows import ALWAYS_SHOWN, SHOWN_WITH, Row, describe, queue_status
from gateway.queue_manager.commands.mqsc_parse import (
    MOST_CHARACTERS,
    Command,
    MqscSyntaxError,
    Parameter,
    by_line,
    parse,
)
from gateway.queue_manager.commands.mqsc_report import MqscReport
from gateway.queue_manager.commands.status_words import check_words
from gateway.queue_manager.commands.without_effect import without_effect
from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.administration import (
    NO_SUCH_VALUE,
    Administration,
    AdministrationError,
    no_status,
    not_found,
)
from gateway.queue_manager.objects.attributes import BY_KEYWORD, FLAGS, PASSED_OVER, QUEUE_KINDS, SYNONYMS, Value

VERBS = {"DEF": "DEFINE", "ALT": "ALTER", "DIS": "DISPLAY", "DISP": "DISPLAY", "DEL": "DELETE"}
OBJECTS = {
    "QL": "QLOCAL", "QM": "QMODEL", "QA": "QALIAS", "QR": "QREMOTE", "Q": "QUEUE", "NL": "NAMELIST", "QS": "QSTATUS",
    "CHL": "CHANNEL", "CHS": "CHSTATUS", "LSTR": "LISTENER", "LS": "LSSTATUS", "PRO": "PROCESS", "QMS": "QMSTATUS",
}  # fmt: skip

ELSEWHERE = frozenset({
    "ARCHIVE", "BUFFPOOL", "CFSTATUS", "CFSTRUCT", "CHINIT", "CHSTATUS", "CLUSQMGR", "CLUSTER", "COMMINFO",
    "GROUP", "LISTENER", "LOG", "LSSTATUS", "MAXSMSGS", "POLICY", "PSID", "SECURITY", "SERVICE", "STGCLASS", "SVSTATUS",
    "SYSTEM", "THREAD", "TRACE", "USAGE", "APSTATUS", "CMDSERV",
})  # fmt: skip
"""Objects of IBM MQ that this queue manager does not have: commands about them are valid, but are not carried out
here."""
VERBS_ELSEWHERE = frozenset({
    "ARCHIVE", "BACKUP", "MOVE", "PURGE", "RECOVER", "RESET", "RESOLVE", "RESUME", "RVERIFY", "SET", "START", "STOP",
    "SUSPEND",
})  # fmt: skip

_DEFINES_QUEUE = re.compile(r"(?i)DEF(INE)?\s+(QL|QLOCAL|QA|QALIAS|QR|QREMOTE|QM|QMODEL)\b")
MOST_TOGETHER = 50
"""How many queues at most are defined in one frame: as many as fit into one turn."""
MONITORED = frozenset({"LGETDATE", "LGETTIME", "LPUTDATE", "LPUTTIME", "MONQ", "MSGAGE", "QTIME"})
"""What `MONITOR` stands for in DISPLAY QSTATUS."""
_DONE = {
    ("DEFINE", "QUEUE"): "AMQ8006I: IBM MQ queue created.",
    ("ALTER", "QUEUE"): "AMQ8008I: IBM MQ queue changed.",
    ("DELETE", "QUEUE"): "AMQ8007I: IBM MQ queue deleted.",
    ("ALTER", "QMGR"): "AMQ8005I: IBM MQ queue manager changed.",
    ("DEFINE", "TOPIC"): "AMQ8690I: IBM MQ topic created.",
    ("ALTER", "TOPIC"): "AMQ8691I: IBM MQ topic changed.",
    ("DELETE", "TOPIC"): "AMQ8692I: IBM MQ topic object deleted.",
    ("DEFINE", "SUB"): "AMQ8094I: IBM MQ subscription created.",
    ("ALTER", "SUB"): "AMQ8095I: IBM MQ subscription changed.",
    ("DELETE", "SUB"): "AMQ8093I: IBM MQ subscription deleted.",
    ("DEFINE", "NAMELIST"): "AMQ8552I: IBM MQ namelist created.",
    ("ALTER", "NAMELIST"): "AMQ8551I: IBM MQ namelist changed.",
    ("DELETE", "NAMELIST"): "AMQ8553I: IBM MQ namelist deleted.",
    ("DEFINE", "AUTHINFO"): "AMQ8563I: IBM MQ authentication information object created.",
    ("ALTER", "AUTHINFO"): "AMQ8567I: IBM MQ authentication information changed.",
    ("DELETE", "AUTHINFO"): "AMQ8568I: IBM MQ authentication information object deleted.",
    ("DEFINE", "CHANNEL"): "AMQ8014I: IBM MQ channel created.",
    ("ALTER", "CHANNEL"): "AMQ8016I: IBM MQ channel changed.",
    ("DELETE", "CHANNEL"): "AMQ8015I: IBM MQ channel deleted.",
    ("DEFINE", "PROCESS"): "AMQ8010I: IBM MQ process created.",
    ("ALTER", "PROCESS"): "AMQ8012I: IBM MQ process changed.",
    ("DELETE", "PROCESS"): "AMQ8011I: IBM MQ process deleted.",
}
SHOWN = {
    "QUEUE": "AMQ8409I: Display Queue details.",
    "QMGR": "AMQ8408I: Display Queue Manager details.",
    "TOPIC": "AMQ8633I: Display topic details.",
    "SUB": "AMQ8096I: IBM MQ subscription inquired.",
    "NAMELIST": "AMQ8550I: Display namelist details.",
    "AUTHINFO": "AMQ8566I: Display authentication information details.",
    "CHANNEL": "AMQ8414I: Display Channel details.",
    "PROCESS": "AMQ8407I: Display Process details.",
    "QSTATUS": "AMQ8450I: Display queue status details.",
    "CONN": "AMQ8276I: Display Connection details.",
    "QMSTATUS": "AMQ8705I: Display Queue Manager Status Details.",
    "AUTHREC": "AMQ8864I: Display authority record details.",
    "TPSTATUS": "AMQ8754I: Display topic status details.",
    "SBSTATUS": "AMQ8099I: IBM MQ subscription status inquired.",
    "ENTAUTH": "AMQ8866I: Display entity authority details.",
    "PUBSUB": "AMQ8723I: Display pub/sub status details.",
    "QSTATS": "AMQ8771I: Queue statistics reset.",
}
_COMPARE: dict[str, Callable[[Value, Value], bool]] = {
    "LT": lambda value, other: value < other,  # type: ignore[operator]
    "GT": lambda value, other: value > other,  # type: ignore[operator]
    "EQ": lambda value, other: value == other,
    "NE": lambda value, other: value != other,
    "LE": lambda value, other: value <= other,  # type: ignore[operator]
    "GE": lambda value, other: value >= other,  # type: ignore[operator]
    "LK": lambda value, other: _like(str(value), str(other)),
    "NL": lambda value, other: not _like(str(value), str(other)),
    "CT": lambda value, other: str(other) in str(value).split(","),
    "EX": lambda value, other: str(other) not in str(value).split(","),
}


def _like(value: str, pattern: str) -> bool:
    return value.startswith(pattern[:-1]) if pattern.endswith("*") else value == pattern


Answer = Iterable[str | None]
"""The lines of an answer, with None where a command that takes long may be interrupted."""
Extension = Callable[[Command], Iterable[str] | None]
"""Carries out commands that this module does not (status of subscriptions, authority records). Returns None for every
other command."""


class Mqsc:
    """Runs commands on one queue manager. Its methods are called with the queue manager's lock held."""

    def __init__(self, core: Core, administration: Administration) -> None:
        self._core = core
        self._administration = administration
        self.extensions: list[Extension] = []

    def run(self, text: str) -> MqscReport:
        """Run every command of the text, even after one has failed, and return the report."""
        report = MqscReport()
        for _ in self.steps(text, report):
            pass
        return report

    def steps(self, text: str, report: MqscReport) -> Iterator[None]:
        """The same in steps: one for each command, each displayed line, or some definitions of queues."""
        together: list[tuple[int, str]] = []
        for found in by_line(text):
            if found is not None and _DEFINES_QUEUE.match(found[1]):
                together.append(found)
            elif found is not None:
                yield from self._together(together, report)
                yield from self._step(*found, report)
            if len(together) == MOST_TOGETHER:
                yield from self._together(together, report)
            yield
        yield from self._together(together, report)
        if report.left_out:
            text = f"{report.left_out} more lines are left out: an answer has at most {report.most} characters."
            report.lines.append(text)

    def _together(self, commands: list[tuple[int, str]], report: MqscReport) -> Iterator[None]:
        """Define queues in one frame, before anybody else has a turn. If the frame cannot be written, each command is
        carried out, and refused, by itself."""
        trial = report.continued()
        try:
            with self._core.saved_together():
                for one in commands:
                    for _ in self._step(*one, trial):
                        pass
        except MQError:
            for one in commands:
                yield from self._step(*one, report)
        else:
            report.take(trial)
        commands.clear()
        yield

    def _step(self, line: int, command_text: str, report: MqscReport) -> Iterator[None]:
        report.read += 1
        report.say(f"     {report.read} : {command_text[:MOST_CHARACTERS]}")
        try:
            for said in self.execute(parse(line, command_text)):
                if said is not None:
                    report.say(said)
                yield
        except MqscSyntaxError as error:
            report.syntax_errors += 1
            found = "AMQ8405I: Syntax error detected at or near end of command segment below:-"
            report.say(found, error.text, f"({error.what})")
            report.problems.append((line, str(error)))
        except MQError as error:
            no_value = isinstance(error, AdministrationError) and error.reason in NO_SUCH_VALUE
            report.syntax_errors += no_value
            report.failed += not no_value
            other = f"AMQ8101S: IBM MQ error ({error.reason}) has occurred. {error}"
            message = error.message if isinstance(error, AdministrationError) else other
            report.say(message)
            report.problems.append((line, message))

    def execute(self, command: Command) -> Answer:
        """Run one command and return the lines of its answer."""
        command.verb = VERBS.get(command.verb, command.verb)
        command.object = OBJECTS.get(command.object, command.object)
        command.parameters = [one for one in command.parameters if not _means_here(one)]
        check_words(command)
        self._name_by_identifier(command)
        for extension in self.extensions:
            lines = extension(command)
            if lines is not None:
                return lines
        handler = {
            "DEFINE": self._define,
            "ALTER": self._alter,
            "DELETE": self._delete,
            "CLEAR": self._clear,
            "DISPLAY": self._display,
            "PING": self._ping,
            "REFRESH": self._refresh,
        }.get(command.verb)
        elsewhere = command.object in ELSEWHERE and command.verb != "REFRESH"
        if elsewhere or (handler is None and command.verb in VERBS_ELSEWHERE):
            raise not_here(command)
        if handler is None:
            raise syntax(command, f"{command.verb} is not supported")
        return handler(command)

    def _name_by_identifier(self, command: Command) -> None:
        """Put the name into a DISPLAY, ALTER or DELETE SUB SUBID(identifier), which names the subscription by its
        identifier."""
        given = next((one for one in command.parameters if one.keyword == "SUBID" and one.values), None)
        if command.object != "SUB" or given is None or not given.values:
            return
        command.parameters.remove(given)
        wanted = given.values[0].upper()
        named = [one.name for one in self._core.catalogue.matching(("SUB",)) if one.extra.get("SUBID") == wanted]
        if not named:
            raise not_found("SUB", wanted)
        command.name = named[0]

    def _define(self, command: Command) -> list[str]:
        kind = _kind(command)
        given, words = _attributes(command, kind)
        self._administration.define(
            kind, _named(command), given, replace="REPLACE" in words, like=words.get("LIKE", "")
        )
        return [_DONE["DEFINE", _family(kind)], *without_effect(command)]

    def _alter(self, command: Command) -> list[str]:
        kind = _kind(command)
        given, _ = _attributes(command, kind)
        self._administration.alter(kind, "" if kind == "QMGR" else _named(command), given)
        return [_DONE["ALTER", _family(kind)], *without_effect(command)]

    def _delete(self, command: Command) -> Answer:
        kind = _kind(command)
        words = _only(command, _OPTIONS | {"AUTHREC"})
        kept = next((one.values for one in command.parameters if one.keyword == "AUTHREC"), ["YES"])
        if kept not in (["YES"], ["NO"]):
            raise syntax(command, "AUTHREC is YES or NO")
        yield from self._administration.delete(kind, _named(command), purge="PURGE" in words, records=kept == ["YES"])
        yield _DONE["DELETE", _family(kind)]

    def _clear(self, command: Command) -> Answer:
        if command.object != "QLOCAL":
            raise syntax(command, "CLEAR QLOCAL(name)")
        _only(command, frozenset())
        yield from self._administration.clear(_named(command))
        yield "AMQ8022I: IBM MQ queue cleared."

    def _ping(self, command: Command) -> list[str]:
        if command.object == "CHANNEL":
            raise not_here(command)
        if command.object != "QMGR":
            raise syntax(command, "PING QMGR")
        _only(command, frozenset())
        return ["AMQ8415I: Ping IBM MQ Queue Manager command complete."]

    def _refresh(self, command: Command) -> list[str]:
        if command.object != "SECURITY":
            raise not_here(command)
        _only(command, frozenset({"TYPE"}))
        return ["AMQ8560I: IBM MQ security cache refreshed."]

    def _display(self, command: Command) -> Iterator[str]:
        if command.object == "QSTATUS":
            rows, kind = self._queue_status(command), "QSTATUS"
        else:
            kind = "QUEUE" if command.object == "QUEUE" else _kind(command)
            rows = self._objects(command, kind)
        heading, any_shown = SHOWN[_family(kind)], False
        for row in rows:
            any_shown = True
            yield heading
            yield from columns(row)
        if not any_shown:
            if kind == "QSTATUS":
                raise no_status(command.name, exists=any(self._administration.select(("QLOCAL",), command.name)))
            raise AdministrationError(2085, f"AMQ8147E: IBM MQ object {command.name or self._core.name} not found.")

    def _objects(self, command: Command, kind: str) -> Iterator[Row]:
        kinds = tuple(QUEUE_KINDS) if kind == "QUEUE" else (kind,)
        wanted, condition, kinds = _selection(command, kinds)
        pattern = "" if kind == "QMGR" else _named(command)
        for definition in self._administration.select(kinds, pattern):
            row = describe(self._core, definition)
            if (condition is None or condition(row)) and (kind != "SUB" or is_selected(command, row)):
                yield chosen(row, wanted, _titles(definition.kind))

    def _queue_status(self, command: Command) -> Iterator[Row]:
        wanted, condition, _ = _selection(command, ())
        if "MONITOR" in wanted:
            wanted |= MONITORED
        compared = next((one.values or [] for one in command.parameters if one.keyword == "WHERE"), [])
        counted = compared[-1:] != [] and compared[-1].isdigit()  # WHERE(UNCOM GT 10) compares the number
        open_type = next((one.values for one in command.parameters if one.keyword == "OPENTYPE"), None) or ["ALL"]
        used = {"INPUT": "IPPROCS", "OUTPUT": "OPPROCS"}.get(open_type[0].upper())
        for definition in self._administration.select(("QLOCAL",), _named(command)):
            status = queue_status(self._core, definition.name)
            if used is not None and not status[used]:
                continue
            row = {"QUEUE": definition.name, "TYPE": "QUEUE"}
            row |= {word: " " if word == "MSGAGE" and value == -1 else str(value) for word, value in status.items()}
            shown = row | {"UNCOM": "YES" if status["UNCOM"] else "NO"}
            if condition is None or condition(row if counted else shown):
                yield chosen(shown, wanted, ("QUEUE", "TYPE"))


_HERE = {"CMDSCOPE": None, "QSGDISP": frozenset({"QMGR", "PRIVATE", "ALL", "LIVE"})}
"""Parameters of z/OS that say where in a queue-sharing group a command is carried out (any value: there is no group),
and on objects of which disposition."""


def _means_here(parameter: Parameter) -> bool:
    """Whether a parameter says, in the terms of z/OS, something that is true here anyway."""
    if parameter.keyword not in _HERE or parameter.values is None:
        return False
    taken = _HERE[parameter.keyword]
    return taken is None or set(parameter.values[:1]) <= taken


def _kind(command: Command) -> str:
    if command.object not in BY_KEYWORD:
        raise syntax(command, f"{command.object or 'nothing'} is not a type of object known here")
    return command.object


def _family(kind: str) -> str:
    return "QUEUE" if kind in QUEUE_KINDS else kind


def _named(command: Command) -> str:
    if not command.name:
        raise syntax(command, "the name of the object is expected in parentheses")
    return command.name


def not_here(command: Command) -> AdministrationError:
    """Returns the refusal of a command that IBM MQ carries out and this queue manager does not."""
    what = f"{command.verb} {command.object}".rstrip()
    why = "It has no channels, listeners or services of its own. " if command.object in _NONE_OF_ITS_OWN else ""
    text = f"not supported here: {what}. {why}docs/reference/mqsc.md lists what is."
    return AdministrationError(mq.MQRCCF_CFH_COMMAND_ERROR, text)


_NONE_OF_ITS_OWN = frozenset({"CHANNEL", "CHINIT", "CHSTATUS", "LISTENER", "LSSTATUS", "SERVICE", "SVSTATUS"})


def syntax(command: Command, what: str) -> MqscSyntaxError:
    """Returns the refusal of a command that cannot be carried out as it is written."""
    return MqscSyntaxError(command.line, command.text, what)


def _only(command: Command, known: frozenset[str]) -> set[str]:
    """Returns the command's keywords. Raises MqscSyntaxError for one that is not `known`."""
    words = {parameter.keyword for parameter in command.parameters}
    if unknown := words - known:
        raise syntax(command, f"{min(unknown)} is not expected here")
    _check_options(command, words)
    return words


def _check_options(command: Command, words: Iterable[str]) -> None:
    for word in ("REPLACE", "PURGE"):
        if {word, f"NO{word}"} <= set(words):
            raise syntax(command, f"{word} and NO{word} contradict each other")


_LISTS = frozenset({"NAMES", "CONNAME", "MSGEXIT", "SENDEXIT", "RCVEXIT", "COMPMSG", "COMPHDR", "SUITEB"})
"""Attributes that take several values."""
_OPTIONS = frozenset({"REPLACE", "NOREPLACE", "LIKE", "FORCE", "ALL", "PURGE", "NOPURGE", "TYPE", "WHERE", "IGNSTATE"})


def _attributes(command: Command, kind: str) -> tuple[dict[str, Value], dict[str, str]]:
    """Returns the attributes given, as numbers and texts, and the command's other keywords."""
    given: dict[str, Value] = {}
    words: dict[str, str] = {}
    for parameter in command.parameters:
        keyword = SYNONYMS.get(parameter.keyword, parameter.keyword)
        flag = FLAGS.get(keyword) if parameter.values is None else None
        if (keyword if flag is None else flag[0]) in given:  # TRIGGER and NOTRIGGER
            raise syntax(command, f"{parameter.keyword} contradicts what precedes it")
        if flag is not None:
            given[flag[0]] = flag[1]
        elif keyword in BY_KEYWORD[kind]:
            given[keyword] = _value(command, kind, keyword, parameter)
        elif keyword in _OPTIONS:
            words[keyword] = parameter.values[0] if parameter.values else ""
        elif keyword in PASSED_OVER.get(kind, ()) and parameter.values is not None:
            continue
        else:
            raise syntax(command, f"{keyword} is not an attribute of {kind}")
    _check_options(command, words)
    return given, words


def _value(command: Command, kind: str, keyword: str, parameter: Parameter) -> Value:
    attribute = BY_KEYWORD[kind][keyword]
    values = parameter.values
    if values is None:
        raise syntax(command, f"{keyword} needs a value in parentheses")
    if len(values) > 1 and keyword not in _LISTS:
        raise syntax(command, f"{keyword} takes one value; put words with blanks between them in quotes")
    if attribute.is_text:
        return ",".join(values)
    word = values[0] if values else ""
    if attribute.words is not None and word.upper() in attribute.words:
        return attribute.words[word.upper()]
    try:
        return int(word)
    except ValueError:
        raise syntax(command, f"{word!r} is not a valid value for {keyword}") from None


Condition = Callable[[Row], bool]
ELSEWHERE_DISPLAYED = frozenset({
    "CFSTRUCT", "CHINIT", "CLUSDATE", "CLUSINFO", "CLUSQMGR", "CLUSQT", "CLUSTER", "CLUSTIME", "CMDSCOPE", "EVENT",
    "PUBSUB", "QSGDISP", "QTYPE", "STGCLASS", "SUMMARY", "SYSTEM", "TPIPE",
})  # fmt: skip
"""Words that IBM MQ accepts in a DISPLAY and for which this queue manager has nothing to show."""


def _displayed(kinds: tuple[str, ...]) -> frozenset[str]:
    """Returns the words that a DISPLAY of these types of objects may ask for; empty if it may ask for any."""
    if not all(kind in BY_KEYWORD for kind in kinds) or not kinds:
        return frozenset()
    words = {word for kind in kinds for word in (*BY_KEYWORD[kind], *SHOWN_WITH.get(kind, ()), kind)}
    words |= {"QUEUE"} if set(kinds) & QUEUE_KINDS.keys() else set()
    return frozenset(words | ELSEWHERE_DISPLAYED | ALWAYS_SHOWN)


def _attribute(word: str) -> str:
    """Returns the attribute that a word of DISPLAY asks for: TARGQ asks for TARGET, and NOTRIGGER for TRIGGER."""
    return FLAGS[word][0] if word in FLAGS else SYNONYMS.get(word, word)


def _selection(command: Command, kinds: tuple[str, ...]) -> tuple[set[str], Condition | None, tuple[str, ...]]:
    """Returns the attributes to show, the condition on objects, and the types of objects."""
    wanted: set[str] = set()
    filtered: set[str] = set()
    condition: Condition | None = None
    for parameter in command.parameters:
        if parameter.keyword == "WHERE":
            condition = condition_of(command, parameter.values or [])
            filtered.add(_attribute((parameter.values or [""])[0].upper()))
        elif parameter.keyword == "TYPE" and parameter.values:
            kind = OBJECTS.get(parameter.values[0], parameter.values[0])
            kinds = kinds if kind in {"ALL", "LOCAL", "QUEUE"} else (kind,)  # for topics: LOCAL and CLUSTER
        elif parameter.keyword not in {"ALL", "OPENTYPE"}:
            wanted.add(_attribute(parameter.keyword))
    # The attribute in WHERE is shown along with those that are asked for.
    unknown = (wanted | filtered) - known if (known := _displayed(kinds)) else frozenset()
    if unknown:
        raise syntax(command, f"{min(unknown)} is not an attribute that can be displayed here")
    brief = not wanted and bool(kinds) and command.name.endswith("*")
    everything = not (wanted or brief) or any(parameter.keyword == "ALL" for parameter in command.parameters)
    return set() if everything else wanted | filtered | (_BRIEF if brief else set()), condition, kinds


_BRIEF = frozenset({"AUTHTYPE", "CHLTYPE", "TOPICSTR"})
"""What a DISPLAY of a generic name shows in addition to names and types if it asks for nothing, as in runmqsc."""
_NUMBER = re.compile(r"-?[0-9]{1,100}")


def condition_of(command: Command, parts: list[str]) -> Condition:
    """Returns the condition of a WHERE."""
    if len(parts) < 3 or parts[1].upper() not in _COMPARE:
        raise syntax(command, "WHERE(attribute operator value) is expected; operators: LT GT EQ NE LE GE LK NL CT EX")
    keyword, operator, other = _attribute(parts[0].upper()), parts[1].upper(), parts[2]
    compare = _COMPARE[operator]

    def holds(row: Row) -> bool:
        value = row.get(keyword)
        if value is None:
            return False
        if _NUMBER.fullmatch(value) and _NUMBER.fullmatch(other):
            return compare(int(value), int(other))
        return compare(value, other if operator not in {"EQ", "NE"} or value == other else other.upper())

    return holds


_SUBTYPES = {"API": ("API",), "ADMIN": ("ADMIN",), "PROXY": ("PROXY",), "USER": ("API", "ADMIN")}


def is_selected(command: Command, row: Row) -> bool:
    """For DISPLAY SUB: whether a subscription has the SUBTYPE and DURABLE that are given with a value."""
    for parameter in command.parameters:
        value = (parameter.values or [""])[0].upper()
        accepted = _SUBTYPES.get(value, (value,))
        if (
            parameter.keyword in {"SUBTYPE", "DURABLE"}
            and value not in {"", "ALL"}
            and row[parameter.keyword] not in accepted
        ):
            return False
    return True


def _titles(kind: str) -> tuple[str, ...]:
    if kind in QUEUE_KINDS:
        return ("QUEUE", "TYPE")
    return ("QMNAME",) if kind == "QMGR" else (kind, "SUBID")


def chosen(row: Row, wanted: set[str], titles: tuple[str, ...]) -> Row:
    """Returns the part of a row that a DISPLAY shows: its titles, and the attributes asked for."""
    keep = {word: row[word] for word in titles if word in row}
    asked = row if not wanted else {word: value for word, value in row.items() if word in wanted}
    return keep | asked


_WITHOUT_VALUE = frozenset(keyword for keyword, _ in FLAGS.values())


def columns(row: Row) -> list[str]:
    """Returns the attributes two to a line, the second at column 44, as runmqsc prints them."""
    lines: list[str] = []
    left = ""
    for word, value in row.items():
        item = value if word in _WITHOUT_VALUE else f"{word}({value or ' '})" if word != "SYNCPT" else word
        if left and len(left) < 40 and len(item) < 40:
            lines.append(f"   {left:<40}{item}")
            left = ""
        else:
            if left:
                lines.append(f"   {left}")
            left = item
    if left:
        lines.append(f"   {left}")
    return lines
