"""Tables of the attributes of the queue manager's objects: MQSC keyword, MQI selector, type, default, values.

MQSC and `DISPLAY` use the keyword; MQINQ, MQSET and PCF use the selector. A value that is a word in MQSC is kept as its
number.
"""

from __future__ import annotations

from typing import NamedTuple

Value = int | str


class Attribute(NamedTuple):
    """One attribute of one type of object."""

    keyword: str
    selector: int
    default: Value
    words: dict[str, int] | None = None
    """The words for values, such as `ENABLED`. Keywords without a value (SHARE, NOSHARE) are listed in `FLAGS`."""
    length: int = 0
    """The length of a character attribute."""
    low: int = 0
    high: int = 999_999_999

    @property
    def is_text(self) -> bool:
        """Whether this is a character attribute, which has an MQCA selector."""
        return isinstance(self.default, str)


SWITCH = {"DISABLED": 0, "ENABLED": 1}
INHIBIT = {"ENABLED": 0, "DISABLED": 1}
YES_NO = {"NO": 0, "YES": 1}
PROPERTY_CONTROL = {"COMPAT": 0, "NONE": 1, "ALL": 2, "FORCE": 3, "V6COMPAT": 4}
MONITOR = {"QMGR": -3, "OFF": 0, "ON": 1}
LEVEL = {"QMGR": -3, "OFF": 0, "LOW": 17, "MEDIUM": 33, "HIGH": 65}
LEVEL_OF_QMGR = {"NONE": -1, "OFF": 0, "LOW": 17, "MEDIUM": 33, "HIGH": 65}
BIND = {"OPEN": 0, "NOTFIXED": 1, "GROUP": 2}
RESPONSE = {"SYNC": 1, "ASYNC": 2}
READ_AHEAD = {"NO": 0, "YES": 1, "DISABLED": 2}

_DESCRIPTION = Attribute("DESCR", 2013, "", length=64)
_PUT = Attribute("PUT", 10, 0, INHIBIT)
_GET = Attribute("GET", 9, 0, INHIBIT)
_PRIORITY = Attribute("DEFPRTY", 6, 0, high=9)
_PERSISTENCE = Attribute("DEFPSIST", 5, 0, YES_NO)
_PUT_RESPONSE = Attribute("DEFPRESP", 184, 1, RESPONSE)
_READ_AHEAD = Attribute("DEFREADA", 188, 0, READ_AHEAD)
_PROPERTIES = Attribute("PROPCTL", 190, 0, PROPERTY_CONTROL)
_BIND = Attribute("DEFBIND", 61, 0, BIND)
_CUSTOM = Attribute("CUSTOM", 2119, "", length=128)
_CLUSTER = Attribute("CLUSTER", 2029, "", length=48)
_CLUSTER_NAMES = Attribute("CLUSNL", 2030, "", length=48)
_SCOPE = Attribute("SCOPE", 45, 1, {"QMGR": 1, "CELL": 2})
_RANK = Attribute("CLWLRANK", 95, 0, high=9)
_WORKLOAD = Attribute("CLWLPRTY", 96, 0, high=9)

_LOCAL_AND_MODEL = (
    _DESCRIPTION, _PUT, _PRIORITY, _PERSISTENCE,
    Attribute("PROCESS", 2012, "", length=48),
    Attribute("MAXDEPTH", 15, 5000),
    Attribute("MAXMSGL", 13, 4_194_304, high=104_857_600),
    Attribute("BOTHRESH", 22, 0),
    Attribute("BOQNAME", 2019, "", length=48),
    Attribute("STREAMQ", 2138, "", length=48),
    Attribute("STRMQOS", 275, 0, {"BESTEF": 0, "MUSTDUP": 1}),
    Attribute("INITQ", 2008, "", length=48),
    Attribute("USAGE", 12, 0, {"NORMAL": 0, "XMITQ": 1}),
    Attribute("SHARE", 23, 1, {"NOSHARE": 0, "SHARE": 1}),
    Attribute("DEFSOPT", 4, 2, {"SHARED": 2, "EXCL": 4}),
    Attribute("MSGDLVSQ", 16, 0, {"PRIORITY": 0, "FIFO": 1}),
    Attribute("RETINTVL", 21, 999_999_999),
    Attribute("HARDENBO", 8, 1, {"NOHARDENBO": 0, "HARDENBO": 1}),
    _GET,
    Attribute("TRIGGER", 24, 0, {"NOTRIGGER": 0, "TRIGGER": 1}),
    Attribute("TRIGTYPE", 28, 1, {"NONE": 0, "FIRST": 1, "EVERY": 2, "DEPTH": 3}),
    Attribute("TRIGDPTH", 29, 1, low=1),
    Attribute("TRIGMPRI", 26, 0, high=9),
    Attribute("TRIGDATA", 2023, "", length=64),
    Attribute("QDEPTHHI", 40, 80, high=100),
    Attribute("QDEPTHLO", 41, 20, high=100),
    Attribute("QDPMAXEV", 42, 1, SWITCH),
    Attribute("QDPHIEV", 43, 0, SWITCH),
    Attribute("QDPLOEV", 44, 0, SWITCH),
    Attribute("QSVCINT", 54, 999_999_999),
    Attribute("QSVCIEV", 46, 0, {"NONE": 0, "HIGH": 1, "OK": 2}),
    Attribute("DISTL", 34, 0, YES_NO),
    Attribute("NPMCLASS", 78, 0, {"NORMAL": 0, "HIGH": 10}),
    Attribute("STATQ", 128, -3, MONITOR),
    Attribute("ACCTQ", 134, -3, MONITOR),
    Attribute("MONQ", 123, -3, LEVEL),
    _PUT_RESPONSE, _READ_AHEAD, _PROPERTIES, _CUSTOM,
    Attribute("IMGRCOVQ", 272, -3, {"QMGR": -3, "NO": 0, "YES": 1}),
    Attribute("MAXFSIZE", 274, -1, {"DEFAULT": -1}, high=267_386_880),
)  # fmt: skip

_CLUSTERED = (_SCOPE, _CLUSTER, _CLUSTER_NAMES, _BIND, _RANK, _WORKLOAD)

LOCAL = (*_LOCAL_AND_MODEL, *_CLUSTERED, Attribute("CLWLUSEQ", 98, -3, {"QMGR": -3, "LOCAL": 0, "ANY": 1}))
MODEL = (*_LOCAL_AND_MODEL, Attribute("DEFTYPE", 7, 3, {"PERMDYN": 2, "TEMPDYN": 3, "SHAREDYN": 4}))
ALIAS = (
    _DESCRIPTION, _PUT, _PRIORITY, _PERSISTENCE, _GET,
    Attribute("TARGET", 2002, "", length=48),
    Attribute("TARGTYPE", 193, 1, {"QUEUE": 1, "TOPIC": 8}),
    _PUT_RESPONSE, _READ_AHEAD, _PROPERTIES, _CUSTOM, *_CLUSTERED,
)  # fmt: skip
REMOTE = (
    _DESCRIPTION, _PUT, _PRIORITY, _PERSISTENCE,
    Attribute("RNAME", 2018, "", length=48),
    Attribute("RQMNAME", 2017, "", length=48),
    Attribute("XMITQ", 2024, "", length=48),
    _PUT_RESPONSE, _CUSTOM, *_CLUSTERED,
)  # fmt: skip
TOPIC = (
    Attribute("TOPICSTR", 2094, "", length=10_240),
    Attribute("DESCR", 2093, "", length=64),
    Attribute("CLUSTER", 2029, "", length=48),
    Attribute("CLROUTE", 255, 0, {"DIRECT": 0, "TOPICHOST": 1}),
    Attribute("DURSUB", 175, 0, {"ASPARENT": 0, "NO": 2, "YES": 1}),
    Attribute("PUB", 181, 0, {"ASPARENT": 0, "DISABLED": 1, "ENABLED": 2}),
    Attribute("SUB", 182, 0, {"ASPARENT": 0, "DISABLED": 1, "ENABLED": 2}),
    Attribute("DEFPSIST", 185, -2, {"ASPARENT": -2, "NO": 0, "YES": 1}),
    Attribute("DEFPRTY", 6, -2, {"ASPARENT": -2}, low=-2, high=9),
    Attribute("DEFPRESP", 184, 0, {"ASPARENT": 0, "SYNC": 1, "ASYNC": 2}),
    Attribute("MDURMDL", 2096, "", length=48),
    Attribute("MNDURMDL", 2097, "", length=48),
    Attribute("NPMSGDLV", 196, 0, {"ASPARENT": 0, "ALL": 1, "ALLDUR": 2, "ALLAVAIL": 3}),
    Attribute("PMSGDLV", 195, 0, {"ASPARENT": 0, "ALL": 1, "ALLDUR": 2, "ALLAVAIL": 3}),
    Attribute("PUBSCOPE", 219, 1, {"ALL": 0, "ASPARENT": 1, "QMGR": 4}),
    Attribute("SUBSCOPE", 218, 1, {"ALL": 0, "ASPARENT": 1, "QMGR": 4}),
    Attribute("PROXYSUB", 199, 2, {"FORCE": 1, "FIRSTUSE": 2}),
    Attribute("WILDCARD", 216, 2, {"BLOCK": 1, "PASSTHRU": 2}),
    Attribute("USEDLQ", 234, 0, {"ASPARENT": 0, "NO": 1, "YES": 2}),
    Attribute("MCAST", 176, 0, {"ASPARENT": 0, "ENABLED": 1, "DISABLED": 2, "ONLY": 3}),
    Attribute("COMMINFO", 2110, "", length=48),
    Attribute("CAPEXPRY", 276, -2, {"ASPARENT": -2, "NOLIMIT": -1}, low=-2),
    _CUSTOM,
)  # fmt: skip
SUBSCRIPTION = (
    Attribute("TOPICSTR", 2094, "", length=10_240),
    Attribute("TOPICOBJ", 2092, "", length=48),
    Attribute("DEST", 3154, "", length=48),
    Attribute("DESTQMGR", 3153, "", length=48),
    Attribute("DESTCLAS", 1273, 2, {"MANAGED": 1, "PROVIDED": 2}),
    Attribute("DESTCORL", 7015, "", length=48),
    Attribute("DURABLE", 1274, 1, {"YES": 1, "NO": 2}),
    Attribute("EXPIRY", 1244, -1, {"UNLIMITED": -1}, low=-1),
    Attribute("PSPROP", 1271, 3, {"NONE": 0, "COMPAT": 1, "RFH2": 2, "MSGPROP": 3}),
    Attribute("PUBACCT", 7010, "", length=64),
    Attribute("PUBAPPID", 3135, "", length=32),
    Attribute("PUBPRTY", 1283, -3, {"ASPUB": -3, "ASQDEF": -1}, low=-3, high=9),
    Attribute("REQONLY", 1280, 2, {"NO": 2, "YES": 1}),
    Attribute("SELECTOR", 3160, "", length=10_240),
    Attribute("SUBLEVEL", 1307, 1, high=9),
    Attribute("SUBSCOPE", 1275, 2, {"ALL": 2, "QMGR": 1}),
    Attribute("SUBUSER", 3156, "", length=12),
    Attribute("USERDATA", 3159, "", length=10_240),
    Attribute("VARUSER", 1277, 2, {"ANY": 2, "FIXED": 1}),
    Attribute("WSCHEMA", 1288, 2, {"CHAR": 1, "TOPIC": 2}),
    Attribute("SUBTYPE", 1289, 2, {"API": 1, "ADMIN": 2, "PROXY": 3}),
)  # fmt: skip
QUEUE_MANAGER = (
    Attribute("DESCR", 2014, "", length=64),
    Attribute("DEADQ", 2006, "SYSTEM.DEAD.LETTER.QUEUE", length=48),
    Attribute("DEFXMITQ", 2025, "", length=48),
    Attribute("MAXMSGL", 13, 4_194_304, low=32_768, high=104_857_600),
    Attribute("MAXUMSGS", 33, 10_000, low=1),
    Attribute("MAXHANDS", 11, 256, low=1),
    Attribute("MAXPROPL", 192, -1, {"NOLIMIT": -1}, low=-1, high=104_857_600),
    Attribute("CCSID", 2, 1208, high=65_535),
    Attribute("CONNAUTH", 2125, "SYSTEM.DEFAULT.AUTHINFO.IDPWOS", length=48),
    Attribute("TRIGINT", 25, 999_999_999),
    Attribute("AUTHOREV", 47, 0, SWITCH),
    Attribute("INHIBTEV", 48, 0, SWITCH),
    Attribute("LOCALEV", 49, 0, SWITCH),
    Attribute("REMOTEEV", 50, 0, SWITCH),
    Attribute("STRSTPEV", 52, 1, SWITCH),
    Attribute("PERFMEV", 53, 0, SWITCH),
    Attribute("CONFIGEV", 51, 0, SWITCH),
    Attribute("CHLEV", 73, 0, {"DISABLED": 0, "ENABLED": 1, "EXCEPTION": 2}),
    Attribute("CHAD", 55, 0, SWITCH),
    Attribute("CHLAUTH", 248, 1, SWITCH),
    Attribute("MARKINT", 68, 5000, {"NOLIMIT": -1}, low=-1),
    Attribute("PSMODE", 187, 2, {"DISABLED": 0, "COMPAT": 1, "ENABLED": 2}),
    Attribute("PSRTYCNT", 206, 5),
    Attribute("TREELIFE", 183, 1800),
    Attribute("MONQ", 123, 0, LEVEL_OF_QMGR),
    Attribute("MONCHL", 122, 0, LEVEL_OF_QMGR),
    Attribute("STATQ", 128, 0, {"NONE": -1, "OFF": 0, "ON": 1}),
    Attribute("STATMQI", 127, 0, {"OFF": 0, "ON": 1}),
    Attribute("STATINT", 131, 1800, high=604_800),
    Attribute("ACCTQ", 134, 0, {"NONE": -1, "OFF": 0, "ON": 1}),
    Attribute("ACCTMQI", 133, 0, {"OFF": 0, "ON": 1}),
    Attribute("ACCTINT", 135, 1800, high=604_800),
    Attribute("SSLKEYR", 2049, "", length=256),
    Attribute("CERTLABL", 2121, "", length=64),
    Attribute("REPOS", 2035, "", length=48),
    Attribute("REPOSNL", 2036, "", length=48),
    Attribute("PARENT", 2102, "", length=48),
    _CUSTOM,
)  # fmt: skip
NAMELIST = (
    Attribute("DESCR", 2009, "", length=64),
    Attribute("NAMES", 2020, "", length=48 * 256),
)
AUTHINFO = (
    Attribute("DESCR", 2046, "", length=64),
    Attribute("AUTHTYPE", 66, 3, {"CRLLDAP": 1, "OCSP": 2, "IDPWOS": 3, "IDPWLDAP": 4}),
    Attribute("CHCKCLNT", 258, 0, {"ASQMGR": 4, "NONE": 1, "OPTIONAL": 0, "REQUIRED": 3, "REQDADM": 2}),
    Attribute("CHCKLOCL", 257, 0, {"NONE": 1, "OPTIONAL": 0, "REQUIRED": 3, "REQDADM": 2}),
    Attribute("FAILDLAY", 259, 1, high=60),
    Attribute("ADOPTCTX", 260, 1, {"NO": 0, "YES": 1}),
)
_CHANNEL_TYPES = {
    "SDR": 1, "SVR": 2, "RCVR": 3, "RQSTR": 4, "CLNTCONN": 6, "SVRCONN": 7, "CLUSRCVR": 8, "CLUSSDR": 9, "MQTT": 10,
    "AMQP": 11,
}  # fmt: skip
CHANNEL = (
    Attribute("CHLTYPE", 1511, 7, _CHANNEL_TYPES),
    Attribute("TRPTYPE", 1501, 2, {"LU62": 1, "TCP": 2}),
    Attribute("DESCR", 3502, "", length=64),
    Attribute("CONNAME", 3506, "", length=264),
    Attribute("QMNAME", 2015, "", length=48),
    Attribute("XMITQ", 3505, "", length=48),
    Attribute("MCAUSER", 3527, "", length=64),
    Attribute("MAXMSGL", 1510, 4_194_304, high=104_857_600),
    Attribute("MAXINST", 1618, 999_999_999),
    Attribute("SHARECNV", 1615, 10),
    Attribute("HBINT", 1563, 300),
    Attribute("SSLCIPH", 3544, "", length=32),
    Attribute("SSLCAUTH", 1568, 0, {"REQUIRED": 0, "OPTIONAL": 1}),
    Attribute("SSLPEER", 3545, "", length=1024),
)
PROCESS = (
    Attribute("DESCR", 2011, "", length=64),
    Attribute("APPLICID", 2001, "", length=256),
    Attribute("APPLTYPE", 1, 6, {"UNIX": 6, "DEF": 6, "WINDOWS": 9, "CICS": 1, "MVS": 2, "OS400": 8}),
    Attribute("ENVRDATA", 2007, "", length=128),
    Attribute("USERDATA", 2021, "", length=128),
)

TABLES: dict[str, tuple[Attribute, ...]] = {
    "QLOCAL": LOCAL,
    "QMODEL": MODEL,
    "QALIAS": ALIAS,
    "QREMOTE": REMOTE,
    "TOPIC": TOPIC,
    "SUB": SUBSCRIPTION,
    "QMGR": QUEUE_MANAGER,
    "NAMELIST": NAMELIST,
    "AUTHINFO": AUTHINFO,
    "CHANNEL": CHANNEL,
    "PROCESS": PROCESS,
}
BY_KEYWORD: dict[str, dict[str, Attribute]] = {
    kind: {attribute.keyword: attribute for attribute in table} for kind, table in TABLES.items()
}
BY_SELECTOR: dict[str, dict[int, Attribute]] = {
    kind: {attribute.selector: attribute for attribute in table} for kind, table in TABLES.items()
}

FLAGS: dict[str, tuple[str, int]] = {
    "SHARE": ("SHARE", 1), "NOSHARE": ("SHARE", 0), "TRIGGER": ("TRIGGER", 1), "NOTRIGGER": ("TRIGGER", 0),
    "HARDENBO": ("HARDENBO", 1), "NOHARDENBO": ("HARDENBO", 0),
}  # fmt: skip
"""MQSC keywords without a value, and the attribute and value that each one sets."""

PASSED_OVER: dict[str, frozenset[str]] = {
    kind: frozenset(words.split())
    for kind, words in {
        "QMGR": """
            ACCTCONO ACTIVREC ACTVCONO ACTVTRC BRIDGEEV CERTVPOL CHADEV CHADEXIT CHIADAPS CHIDISPS CHISERVP
            CLWLDATA CLWLEXIT CLWLLEN CLWLMRUC CLWLUSEQ CMDEV DEFCLXQ EXPRYINT GROUPUR IGQ IGQAUT IGQUSER
            IMGINTVL IMGLOGLN IMGRCOVO IMGRCOVQ IMGSCHED INITKEY IPADDRV KEYRPWD LOGGEREV LSTRTMR MAXCHL MONACLS
            OTELTRAC PSCLUS PSNPMSG PSNPRES PSSYNCPT RCVTIME REVDNS ROUTEREC SCHINIT SCMDSERV SCYCASE SSLCRLNL
            SSLCRYP SSLEV SSLFIPS SSLRKEYC SSLTASKS STATACLS STATCHL SUITEB TCPCHL TCPKEEP TCPNAME TCPSTACK TRAXSTR
            TRAXTBL""",
        "QLOCAL": "CAPEXPRY CFSTRUCT CLCHNAME INDXTYPE OTEL OTELTRAC STGCLASS",
        "QMODEL": "CAPEXPRY CFSTRUCT INDXTYPE OTEL OTELTRAC STGCLASS",
        "QALIAS": "CAPEXPRY OTEL",
        "QREMOTE": "CAPEXPRY OTEL OTELTRAC",
        "TOPIC": "OTEL",
        "SUB": "SELTYPE",
        "NAMELIST": "NLTYPE",
        "AUTHINFO": """
            AUTHENMD AUTHORMD BASEDNG BASEDNU CLASSGRP CLASSUSR CONNAME FINDGRP GRPFIELD LDAPPWD LDAPUSER
            NESTGRP OCSPURL SECCOMM SHORTUSR USRFIELD""",
        "CHANNEL": """
            AFFINITY AUTOSTART BACKLOG BATCHHB BATCHINT BATCHLIM BATCHSZ CERTLABL CLNTWGHT CLUSNL CLUSTER
            CLWLPRTY CLWLRANK CLWLWGHT COMPHDR COMPMSG CONVERT DEFCDISP DEFRECON DISCINT JAASCFG KAINT LOCLADDR
            LONGRTY LONGTMR MAXINSTC MCANAME MCATYPE MODENAME MONCHL MRDATA MREXIT MRRTY MRTMR MSGDATA MSGEXIT
            NETPRTY NPMSPEED PASSWORD PORT PROPCTL PUTAUT RCVDATA RCVEXIT RESETSEQ SCYDATA SCYEXIT SENDDATA
            SENDEXIT SEQWRAP SHORTRTY SHORTTMR SPLPROT STATCHL TMPMODEL TMPQPRFX TPNAME TPROOT USECLTID USEDLQ
            USERID""",
    }.items()
}
"""Attributes of IBM MQ that a DEFINE or ALTER may give but that are not kept, because nothing here would use them."""
_CAPEXPRY = frozenset({276})
PASSED_OVER_IN_PCF: dict[str, frozenset[int]] = {
    "QMGR": frozenset({
        39, 56, 58, 64, 65, 69, 74, 75, 76, 92, 93, 94, 97, 98, 99, 101, 105, 107, 109, 111, 114, 115, 116, 117, 118,
        119, 120, 124, 129, 130, 136, 137, 138, 141, 203, 205, 207, 221, 239, 240, 247, 249, 250, 252, 254, 268, 269,
        270, 271, 272, 2026, 2033, 2034, 2041, 2050, 2051, 2054, 2055, 2075, 2076,
    }),
    "QLOCAL": _CAPEXPRY, "QMODEL": _CAPEXPRY, "QALIAS": _CAPEXPRY, "QREMOTE": _CAPEXPRY,
}  # fmt: skip
"""The same attributes by their numbers (MQIA_*, MQCA_*)."""

HEXADECIMAL = frozenset({"DESTCORL", "PUBACCT"})
"""Attributes of subscriptions whose text is the hexadecimal digits of bytes."""

SYNONYMS = {"TARGQ": "TARGET", "SUBUSERID": "SUBUSER", "DEFINITION": "DEFTYPE"}

QUEUE_KINDS = {"QLOCAL": 1, "QMODEL": 2, "QALIAS": 3, "QREMOTE": 6}
"""Types of queue by keyword, as MQQT_*."""
KIND_OF_QUEUE = {number: kind for kind, number in QUEUE_KINDS.items()}


def in_words(attribute: Attribute, value: Value) -> str:
    """Returns a value as MQSC shows it."""
    if attribute.words is not None and isinstance(value, int):
        for word, number in attribute.words.items():
            if number == value:
                return word
    return str(value)
