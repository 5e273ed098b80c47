"""The words that commands on status and authority take. A misspelt word is refused rather than left out of the
answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.queue_manager.commands.mqsc_parse import Command, MqscSyntaxError


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one command."""

    shown: frozenset[str]
    """What the command can show, in DISPLAY or by WHERE."""
    values: Mapping[str, frozenset[str]]
    """Keywords that select by a value, and the values they take; empty: any value."""
    elsewhere: frozenset[str] = frozenset()
    """What IBM MQ shows and this queue manager does not have."""


def _words(shown: str, values: Mapping[str, str], elsewhere: str = "") -> Words:
    taken = {word: frozenset(given.split()) for word, given in values.items()}
    return Words(frozenset(shown.split()), taken, frozenset(elsewhere.split()))


_OBJECT_TYPES = "QUEUE QMGR TOPIC NAMELIST PROCESS CHANNEL AUTHINFO"
_PROGRAM = "APPLTAG APPLTYPE USERID CHANNEL CONNAME PID"
_UNITS_ELSEWHERE = (
    "APPLDESC ASID ASTATE EXTURID NID PSBNAME PSTID QMURID READA TASKNO TID TRANSID UOWLOG UOWLOGDA UOWLOGTI "
    "UOWSTDA UOWSTTI URDISP URID URTYPE CLIENTID CONNOPTS"
)
WORDS = {
    ("DISPLAY", "QSTATUS"): _words(
        f"QUEUE TYPE CURDEPTH IPPROCS OPPROCS MSGAGE UNCOM LPUTDATE LPUTTIME LGETDATE LGETTIME {_PROGRAM} BROWSE "
        "HSTATE INPUT INQUIRE OUTPUT SET",
        {"TYPE": "QUEUE HANDLE", "OPENTYPE": "ALL INPUT OUTPUT"},
        f"CURFSIZE CURMAXFS MEDIALOG MONITOR MONQ QTIME {_UNITS_ELSEWHERE}",
    ),
    ("DISPLAY", "CONN"): _words(
        f"CONN EXTCONN TYPE {_PROGRAM} URTYPE UOWSTATE UOWMSGS CONNDATE CONNTIME OBJNAME OBJTYPE OPENOPTS HSTATE "
        "ASTATE READA SUBNAME SUBID TOPICSTR DEST DESTQMGR",
        {"TYPE": "CONN HANDLE ALL", "EXTCONN": ""},
        f"QSGDISP {_UNITS_ELSEWHERE}",
    ),
    ("DISPLAY", "QMSTATUS"): _words(
        "QMNAME STATUS CONNS CMDSERV STARTDA STARTTI",
        {"TYPE": "QMGR"},
        "ARCHLOG ARCHSZ AUTOCLUS CHINIT CURRLOG DATFSSZ DATFSUSE DATPATH HOSTNAME INSTDESC INSTNAME INSTPATH LDAPCONN "
        "LOG LOGEXTSZ LOGFSSZ LOGFSUSE LOGINUSE LOGPATH LOGPRIM LOGSEC LOGSTRDA LOGSTRL LOGSTRTI LOGTYPE LOGUTIL "
        "MEDIALOG MEDIASZ QMFSENC QMFSSZ QMFSUSE RECLOG RECSZ REUSESZ STANDBY UNICLUS",
    ),
    ("DISPLAY", "TPSTATUS"): _words(
        "TOPICSTR RETAINED SUBCOUNT PUBMSGS SUBID SUBUSER DURABLE SUBTYPE ACTCONN",
        {"TYPE": "TOPIC SUB"},
        "ADMIN CAPEXPRY CLROUTE CLUSTER COMMINFO DEFPRESP DEFPRTY DEFPSIST DURSUB LMSGDATE LMSGTIME LPUBDATE LPUBTIME "
        "MCAST MCASTREL MDURMDL MNDURMDL NPMSGDLV NUMMSGS NUMPUBS PMSGDLV PUB PUBCOUNT PUBSCOPE RESMDATE RESMTIME SUB "
        "SUBSCOPE USEDLQ",
    ),
    ("DISPLAY", "SBSTATUS"): _words(
        "SUB SUBID SUBTYPE DURABLE TOPICSTR DEST ACTCONN",
        {"DURABLE": "YES NO ALL", "SUBID": "", "SUBTYPE": "ADMIN API PROXY USER ALL"},
        "LMSGDATE LMSGTIME MCASTREL NUMMSGS RESMDATE RESMTIME SUBUSER",
    ),
    ("DISPLAY", "PUBSUB"): _words(
        "QMNAME TYPE STATUS SUBCOUNT TPCOUNT", {"TYPE": "ALL LOCAL"}
    ),
    ("DISPLAY", "AUTHREC"): _words(
        "PROFILE ENTITY ENTTYPE OBJTYPE AUTHLIST",
        {
            "PROFILE": "", "PRINCIPAL": "", "GROUP": "", "OBJTYPE": f"ALL {_OBJECT_TYPES}",
            "SERVCOMP": "",
        },
    ),
    ("DISPLAY", "ENTAUTH"): _words(
        "OBJNAME ENTITY ENTTYPE OBJTYPE AUTHLIST",
        {"OBJNAME": "", "PRINCIPAL": "", "GROUP": "", "OBJTYPE": _OBJECT_TYPES, "SERVCOMP": ""},
    ),
    ("SET", "AUTHREC"): _words(
        "",
        {"PROFILE": "", "PRINCIPAL": "", "GROUP": "", "OBJTYPE": "", "AUTHADD": "", "AUTHRMV": "", "SERVCOMP": ""},
    ),
    ("DELETE", "AUTHREC"): _words("", {"PROFILE": "", "PRINCIPAL": "", "GROUP": "", "OBJTYPE": "", "SERVCOMP": ""}),
    ("RESET", "QSTATS"): _words("", {}),
    ("CLEAR", "TOPICSTR"): _words("", {"CLRTYPE": "RETAINED", "SCOPE": "LOCAL"}),
    ("STOP", "CONN"): _words("", {"EXTCONN": ""}),
    ("DISPLAY", "CHLAUTH"): _words(
        "CHLAUTH TYPE DESCR CUSTOM SSLPEER SSLCERTI CLNTUSER QMNAME ADDRESS USERSRC MCAUSER CHCKCLNT WARN USERLIST "
        "ADDRLIST ALTDATE ALTTIME",
        {
            "TYPE": "", "MATCH": "", "ADDRESS": "", "CLNTUSER": "", "SSLPEER": "", "SSLCERTI": "", "QMNAME": "",
        },
        "AUTHLIST",
    ),
}  # fmt: skip


def check_words(command: Command) -> None:
    """Refuse a word that the command does not take. A command that is not in the table is not checked."""
    words = WORDS.get((command.verb, command.object))
    if words is None:
        return
    for parameter in command.parameters:
        keyword, values = parameter.keyword, parameter.values
        if command.verb == "DISPLAY" and keyword == "ALL" and values is None:
            continue
        if command.verb == "DISPLAY" and keyword == "WHERE" and values:
            if values[0].upper() not in words.shown | words.elsewhere:
                raise _refused(command, f"{values[0].upper()} is not an attribute that can be displayed here")
            continue
        if values is not None and keyword in words.values:
            taken, given = words.values[keyword], values[0] if values else ""
            if taken and given.upper() not in taken:
                raise _refused(command, f"{given} is not a valid value for {keyword}: {', '.join(sorted(taken))}")
        elif values is not None or keyword not in words.shown | words.elsewhere:
            what = "not an attribute that can be displayed here" if command.verb == "DISPLAY" else "not expected here"
            raise _refused(command, f"{keyword} is {what}")


def _refused(command: Command, what: str) -> MqscSyntaxError:
    return MqscSyntaxError(command.line, command.text, what)
