/* The caller's structures: StrucId and Version are checked before any other field is read. */
#include "mqm.h"

outcome check_structure(const void *structure, const char *id, MQLONG newest, MQLONG bad) {
    if (!structure || memcmp(structure, id, 4)) return failed(bad);
    MQLONG version;
    memcpy(&version, (const char *)structure + 4, sizeof version);
    return version < 1 || version > newest ? failed(bad) : done;
}

static const MQMD md_default = {MQMD_DEFAULT};

/* Names and formats may be padded with NULs; those kept and returned are padded with blanks. */
static void md_pad(MQMD *md) {
    field_copy(md->Format, md->Format, sizeof md->Format);
    field_copy(md->ReplyToQ, md->ReplyToQ, sizeof md->ReplyToQ);
    field_copy(md->ReplyToQMgr, md->ReplyToQMgr, sizeof md->ReplyToQMgr);
    field_copy(md->UserIdentifier, md->UserIdentifier, sizeof md->UserIdentifier);
    field_copy(md->ApplIdentityData, md->ApplIdentityData, sizeof md->ApplIdentityData);
    field_copy(md->PutApplName, md->PutApplName, sizeof md->PutApplName);
    field_copy(md->PutDate, md->PutDate, sizeof md->PutDate);
    field_copy(md->PutTime, md->PutTime, sizeof md->PutTime);
    field_copy(md->ApplOriginData, md->ApplOriginData, sizeof md->ApplOriginData);
}

outcome md_in(const MQMD *from, MQMD *to) {
    outcome o = check_structure(from, "MD  ", MQMD_CURRENT_VERSION, RC_MD);
    if (is_failed(o)) return o;
    *to = md_default;
    memcpy(to, from, from->Version == 1 ? MQMD_LENGTH_1 : MQMD_LENGTH_2);
    to->Version = MQMD_VERSION_2;
    md_pad(to);
    return done;
}

/* A version-1 caller gets 324 bytes and keeps the Version it gave. */
void md_out(const MQMD *from, MQMD *to) {
    MQLONG version = to->Version;
    memcpy(to, from, version == 1 ? MQMD_LENGTH_1 : MQMD_LENGTH_2);
    to->Version = version;
}
