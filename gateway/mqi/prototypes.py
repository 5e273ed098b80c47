"""The calls of the MQI and of the administration bags as C declarations: names, arguments, and the bags' constants.

The library exports exactly these names; the headers declare them; the tests compare the two.
"""

from __future__ import annotations

_END = "PMQLONG pCompCode, PMQLONG pReason"
_BUFFER = "MQLONG BufferLength, PMQVOID pBuffer"
_ATTRIBUTES = (
    "MQLONG SelectorCount, PMQLONG pSelectors, MQLONG IntAttrCount, PMQLONG pIntAttrs, "
    "MQLONG CharAttrLength, PMQCHAR pCharAttrs"
)

_CALLS = {
    "MQCONN": "PMQCHAR pQMgrName, PMQHCONN pHconn",
    "MQCONNX": "PMQCHAR pQMgrName, PMQCNO pConnectOpts, PMQHCONN pHconn",
    "MQDISC": "PMQHCONN pHconn",
    "MQOPEN": "MQHCONN Hconn, PMQVOID pObjDesc, MQLONG Options, PMQHOBJ pHobj",
    "MQCLOSE": "MQHCONN Hconn, PMQHOBJ pHobj, MQLONG Options",
    "MQPUT": f"MQHCONN Hconn, MQHOBJ Hobj, PMQVOID pMsgDesc, PMQVOID pPutMsgOpts, {_BUFFER}",
    "MQPUT1": f"MQHCONN Hconn, PMQVOID pObjDesc, PMQVOID pMsgDesc, PMQVOID pPutMsgOpts, {_BUFFER}",
    "MQGET": f"MQHCONN Hconn, MQHOBJ Hobj, PMQVOID pMsgDesc, PMQVOID pGetMsgOpts, {_BUFFER}, PMQLONG pDataLength",
    "MQBEGIN": "MQHCONN Hconn, PMQVOID pBeginOptions",
    "MQCMIT": "MQHCONN Hconn",
    "MQBACK": "MQHCONN Hconn",
    "MQINQ": f"MQHCONN Hconn, MQHOBJ Hobj, {_ATTRIBUTES}",
    "MQSET": f"MQHCONN Hconn, MQHOBJ Hobj, {_ATTRIBUTES}",
    "MQSTAT": "MQHCONN Hconn, MQLONG Type, PMQVOID pStatus",
    "MQSUB": "MQHCONN Hconn, PMQVOID pSubDesc, PMQHOBJ pHobj, PMQHOBJ pHsub",
    "MQSUBRQ": "MQHCONN Hconn, MQHOBJ Hsub, MQLONG Action, PMQVOID pSubRqOpts",
    "MQCB": "MQHCONN Hconn, MQLONG Operation, PMQVOID pCallbackDesc, MQHOBJ Hobj, "
    "PMQVOID pMsgDesc, PMQVOID pGetMsgOpts",
    "MQCTL": "MQHCONN Hconn, MQLONG Operation, PMQVOID pControlOpts",
    "MQCRTMH": "MQHCONN Hconn, PMQVOID pCrtMsgHOpts, PMQHMSG pHmsg",
    "MQDLTMH": "MQHCONN Hconn, PMQHMSG pHmsg, PMQVOID pDltMsgHOpts",
    "MQSETMP": "MQHCONN Hconn, MQHMSG Hmsg, PMQVOID pSetPropOpts, PMQVOID pName, PMQVOID pPropDesc, MQLONG Type, "
    "MQLONG ValueLength, PMQVOID pValue",
    "MQINQMP": "MQHCONN Hconn, MQHMSG Hmsg, PMQVOID pInqPropOpts, PMQVOID pName, PMQVOID pPropDesc, PMQLONG pType, "
    "MQLONG ValueLength, PMQVOID pValue, PMQLONG pDataLength",
    "MQDLTMP": "MQHCONN Hconn, MQHMSG Hmsg, PMQVOID pDltPropOpts, PMQVOID pName",
    "MQBUFMH": f"MQHCONN Hconn, MQHMSG Hmsg, PMQVOID pBufMsgHOpts, PMQVOID pMsgDesc, {_BUFFER}, PMQLONG pDataLength",
    "MQMHBUF": f"MQHCONN Hconn, MQHMSG Hmsg, PMQVOID pMsgHBufOpts, PMQVOID pName, PMQVOID pMsgDesc, {_BUFFER}, "
    "PMQLONG pDataLength",
    "MQXCNVC": "MQHCONN Hconn, MQLONG Options, MQLONG SourceCCSID, MQLONG SourceLength, PMQCHAR pSourceBuffer, "
    "MQLONG TargetCCSID, MQLONG TargetLength, PMQCHAR pTargetBuffer, PMQLONG pDataLength",
}

_ITEM = "MQHBAG Bag, MQLONG Selector"
_NTH = f"{_ITEM}, MQLONG ItemIndex"
_TEXT = "MQLONG BufferLength, PMQCHAR pBuffer"
_BYTES = "MQLONG BufferLength, PMQBYTE pBuffer"
_BAG_CALLS = {
    "mqAddBag": f"{_ITEM}, MQHBAG ItemValue",
    "mqAddByteString": f"{_ITEM}, {_BYTES}",
    "mqAddByteStringFilter": f"{_ITEM}, {_BYTES}, MQLONG Operator",
    "mqAddInquiry": _ITEM,
    "mqAddInteger": f"{_ITEM}, MQLONG ItemValue",
    "mqAddInteger64": f"{_ITEM}, MQINT64 ItemValue",
    "mqAddIntegerFilter": f"{_ITEM}, MQLONG ItemValue, MQLONG Operator",
    "mqAddString": f"{_ITEM}, {_TEXT}",
    "mqAddStringFilter": f"{_ITEM}, {_TEXT}, MQLONG Operator",
    "mqBagToBuffer": "MQHBAG OptionsBag, MQHBAG DataBag, MQLONG BufferLength, PMQVOID pBuffer, PMQLONG pDataLength",
    "mqBufferToBag": "MQHBAG OptionsBag, MQLONG BufferLength, PMQVOID pBuffer, MQHBAG DataBag",
    "mqClearBag": "MQHBAG Bag",
    "mqCountItems": f"{_ITEM}, PMQLONG pItemCount",
    "mqCreateBag": "MQLONG Options, PMQHBAG pBag",
    "mqDeleteBag": "PMQHBAG pBag",
    "mqDeleteItem": _NTH,
    "mqExecute": "MQHCONN Hconn, MQLONG Command, MQHBAG OptionsBag, MQHBAG AdminBag, MQHBAG ResponseBag, "
    "MQHOBJ AdminQ, MQHOBJ ResponseQ",
    "mqGetBag": "MQHCONN Hconn, MQHOBJ Hobj, PMQVOID pMsgDesc, PMQVOID pGetMsgOpts, MQHBAG Bag",
    "mqInquireBag": f"{_NTH}, PMQHBAG pItemValue",
    "mqInquireByteString": f"{_NTH}, {_BYTES}, PMQLONG pByteStringLength",
    "mqInquireByteStringFilter": f"{_NTH}, {_BYTES}, PMQLONG pByteStringLength, PMQLONG pOperator",
    "mqInquireInteger": f"{_NTH}, PMQLONG pItemValue",
    "mqInquireInteger64": f"{_NTH}, PMQINT64 pItemValue",
    "mqInquireIntegerFilter": f"{_NTH}, PMQLONG pItemValue, PMQLONG pOperator",
    "mqInquireItemInfo": f"{_NTH}, PMQLONG pOutSelector, PMQLONG pItemType",
    "mqInquireString": f"{_NTH}, {_TEXT}, PMQLONG pStringLength, PMQLONG pCodedCharSetId",
    "mqInquireStringFilter": f"{_NTH}, {_TEXT}, PMQLONG pStringLength, PMQLONG pCodedCharSetId, PMQLONG pOperator",
    "mqPad": "PMQCHAR pString, MQLONG BufferLength, PMQCHAR pBuffer",
    "mqPutBag": "MQHCONN Hconn, MQHOBJ Hobj, PMQVOID pMsgDesc, PMQVOID pPutMsgOpts, MQHBAG Bag",
    "mqSetByteString": f"{_NTH}, {_BYTES}",
    "mqSetByteStringFilter": f"{_NTH}, {_BYTES}, MQLONG Operator",
    "mqSetInteger": f"{_NTH}, MQLONG ItemValue",
    "mqSetInteger64": f"{_NTH}, MQINT64 ItemValue",
    "mqSetIntegerFilter": f"{_NTH}, MQLONG ItemValue, MQLONG Operator",
    "mqSetString": f"{_NTH}, {_TEXT}",
    "mqSetStringFilter": f"{_NTH}, {_TEXT}, MQLONG Operator",
    "mqTrim": "MQLONG BufferLength, PMQCHAR pBuffer, PMQCHAR pString",
    "mqTruncateBag": "MQHBAG Bag, MQLONG ItemCount",
}

BAG_CONSTANTS = {
    "MQCBO_NONE": 0,
    "MQCBO_USER_BAG": 0,
    "MQCBO_ADMIN_BAG": 1,
    "MQBL_NULL_TERMINATED": -1,
    "MQHB_UNUSABLE_HBAG": -1,
    "MQHB_NONE": -2,
    "MQIND_NONE": -1,
    "MQIND_ALL": -2,
    "MQHA_BAG_HANDLE": 4001,
    "MQIASY_COMP_CODE": -6,
    "MQIASY_REASON": -7,
    "MQIT_INTEGER": 1,
    "MQIT_STRING": 2,
    "MQIT_BAG": 3,
    "MQITEM_INTEGER": 1,
    "MQITEM_STRING": 2,
    "MQITEM_BAG": 3,
    "MQITEM_BYTE_STRING": 4,
    "MQSEL_ANY_SELECTOR": -30001,
    "MQSEL_ANY_USER_SELECTOR": -30002,
    "MQSEL_ANY_SYSTEM_SELECTOR": -30003,
    "MQSEL_ALL_SELECTORS": -30001,
    "MQSEL_ALL_USER_SELECTORS": -30002,
    "MQSEL_ALL_SYSTEM_SELECTORS": -30003,
}

NAMES = (*_CALLS, *_BAG_CALLS)
PROTOTYPES = tuple(f"{name}({arguments}, {_END})" for name, arguments in _CALLS.items())
BAG_PROTOTYPES = tuple(f"{name}({arguments}, {_END})" for name, arguments in _BAG_CALLS.items())


def bag_stubs() -> str:
    """Returns C definitions of the bag calls; each refuses with 2298, function not supported."""
    body = "{ *pCompCode = 2; *pReason = 2298; }"
    lines = ["/* Generated: the administration bags are not offered; clients that bind every name need them. */"]
    lines += ['#pragma GCC diagnostic ignored "-Wunused-parameter"', '#include "cmqbc.h"']
    lines += [f'__attribute__((visibility("default"))) void {line}\n{body}' for line in BAG_PROTOTYPES]
    return "\n".join(lines) + "\n"
