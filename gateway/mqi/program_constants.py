"""Constants that programs in C use but the gateway itself does not; for the generated headers."""

from __future__ import annotations

_NO_OPTIONS = (
    "BMHO", "BO", "CBDO", "CMHO", "CTLO", "DMHO", "DMPO", "GMO", "IMPO", "MHBO", "PD", "PMO", "SMPO", "SO", "SRO",
)  # fmt: skip
NUMBERS = {f"MQ{name}_NONE": 0 for name in _NO_OPTIONS} | {
    "MQBMHO_DELETE_PROPERTIES": 1, "MQCBCT_MC_EVENT_CALL": 8, "MQCBDO_EVENT_CALL": 16384,
    "MQCBDO_MC_EVENT_CALL": 32768, "MQCO_IMMEDIATE": 0, "MQCS_NONE": 0, "MQCS_STOPPED": 4,
    "MQCS_SUSPENDED": 3, "MQCS_SUSPENDED_TEMPORARY": 1, "MQCS_SUSPENDED_USER_ACTION": 2,
    "MQCTLO_FAIL_IF_QUIESCING": 8192, "MQCTLO_THREAD_AFFINITY": 1, "MQDCC_DEFAULT_CONVERSION": 1, "MQDCC_NONE": 0,
    "MQGMO_UNMARK_BROWSE_CO_OP": 0x400000, "MQGMO_UNMARK_BROWSE_HANDLE": 0x800000, "MQMHBO_DELETE_PROPERTIES": 2,
    "MQMHBO_PROPERTIES_IN_MQRFH2": 1, "MQOO_BIND_AS_Q_DEF": 0, "MQOO_RESOLVE_NAMES": 0x10000,
    "MQSRO_FAIL_IF_QUIESCING": 8192,
}  # fmt: skip
NULLS = {
    "MQACT_NONE": 32, "MQCI_NONE": 24, "MQCONNID_NONE": 24, "MQCT_NONE": 128, "MQGI_NONE": 24, "MQMI_NONE": 24,
    "MQMTOK_NONE": 16, "MQOII_NONE": 24, "MQSID_NONE": 40,
}  # fmt: skip
"""Values of byte fields that mean that there is none, with their lengths: programs copy them."""
STRINGS = {
    "MQFMT_RF_HEADER_1": b"MQHRF   ", "MQTMC_STRUC_ID": b"TMC ", "MQTMC_VERSION_1": b"   1",
    "MQTMC_VERSION_2": b"   2", "MQTMC_CURRENT_VERSION": b"   2",
}  # fmt: skip
"""Names of texts that are not made from the layout table."""
