"""Rules, publications and their origins as the property tests of the bridge draw them."""

from __future__ import annotations

from hypothesis import strategies as st

from gateway.bridge.origin import Origin

TEMPLATES = [
    "{x}",
    "a-{x}-b",
    "{client}",
    "{topic}",
    "{qos}",
    "{json.n}",
    "{json.s}",
    "{received_at}",
    "{packet_id}",
    "{y}",
    "fixed",
]
LEVELS = st.one_of(
    st.sampled_from(["lima", "7", "A_b"]), st.text(st.characters(codec="utf-8", exclude_characters="\0+#/"), max_size=6)
)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0{}"), max_size=6)


def optional(**fields):
    return st.fixed_dictionaries({}, optional=fields)


RULES = st.builds(
    lambda required, more: {**required, **more},
    st.fixed_dictionaries(
        {
            "name": st.just("r"),
            "topic": st.just("p/{x}/{y*}"),
            "queue": st.sampled_from(["Q", "T.{x}", "T.{x}.{json.q}", "{x}.T"]),
        }
    ),
    optional(
        headers=st.lists(st.sampled_from(["mcd", "mqps", "mqtt"]), unique=True, min_size=1),
        properties=st.dictionaries(
            st.sampled_from(["a", "b", "c", "site"]),
            st.sampled_from([*TEMPLATES, "{user}", "{property.a}", "{json.n:int}", "{json.gone}", "{qos:string}"]),
        ),
        user_properties=st.booleans(),
        group_by=st.sampled_from(["{client}", "{x}", "{json.n}"]),
        payload=optional(
            format=st.sampled_from(["auto", "bytes", "string", "json", "MYFORM"]), ccsid=st.sampled_from([1208])
        ),
        descriptor=optional(
            persistence=st.sampled_from(["from_qos", "persistent", "not_persistent"]),
            priority=st.integers(0, 9),
            expiry=st.sampled_from(["from_publish", "never", "10s", "3600s"]),
            correlation=st.sampled_from(TEMPLATES),
            user=st.sampled_from(["{x}", "fixed user of some length", "{json.s}"]),
            application_data=st.sampled_from(["{topic}", "{received_at}"]),
            message_type=st.just("datagram"),
            reply_to=st.just({"queue": "R"}),
        ),
    ),
)
REPORTS = st.lists(st.sampled_from(["coa", "cod", "exception", "pan", "nan", "pass_msg_id", "discard"]), unique=True)
PROPERTIES = optional(
    **{
        "1": st.integers(0, 1), "2": st.integers(0, 2**32 - 1), "3": WORDS, "8": WORDS, "9": st.binary(max_size=30),
        "38": st.lists(st.tuples(st.one_of(st.sampled_from(["a", "site", "x y"]), WORDS), WORDS), max_size=4),
    }
).map(lambda found: {int(key): value for key, value in found.items()})  # fmt: skip
DOCUMENTS = st.fixed_dictionaries(
    {"n": st.one_of(st.integers(-(2**60), 2**60), st.booleans(), st.floats(-9e9, 9e9)), "s": WORDS, "q": LEVELS}
)
ORIGINS = st.builds(
    lambda client, user, levels, qos, retain: Origin(client, user, "/".join(["p", *levels]), qos, retain),
    WORDS, st.one_of(st.just(""), WORDS), st.lists(LEVELS, min_size=1, max_size=3), st.integers(0, 2), st.booleans(),
)  # fmt: skip
