/* MQXCNVC, with the C library's iconv. */
#include <iconv.h>
#include <stdio.h>

#include "mqm.h"

static const char *charset(MQLONG ccsid, char room[16]) {
    switch (ccsid) {
    case 0: case MQCCSI_APPL: case 1208: return "UTF-8";
    case 819: return "ISO-8859-1";
    case 923: return "ISO-8859-15";
    case 367: return "ASCII";
    case 1200: case 13488: case 17584: return "UTF-16LE";
    case 1201: return "UTF-16BE";
    default: break;
    }
    if (ccsid >= 1250 && ccsid <= 1258) snprintf(room, 16, "CP%d", ccsid);
    else snprintf(room, 16, ccsid < 1000 ? "IBM%03d" : "IBM%d", ccsid > 0 ? ccsid : 0);
    return room;
}

outcome convert_text(MQLONG from, view text, MQLONG to, buffer *out) {
    char from_room[16], to_room[16], chunk[512];
    iconv_t probe = iconv_open("UTF-8", charset(from, from_room));
    if (probe == (iconv_t)-1) return failed(RC_SOURCE_CCSID);
    iconv_close(probe);
    iconv_t cd = iconv_open(charset(to, to_room), charset(from, from_room));
    if (cd == (iconv_t)-1) return failed(RC_TARGET_CCSID);
    char *in = (char *)text.data;
    size_t left = text.length;
    outcome o = done;
    while (left && !is_failed(o)) {
        char *next = chunk;
        size_t room = sizeof chunk, before = left;
        iconv(cd, &in, &left, &next, &room);
        if (!buffer_add(out, chunk, (size_t)(next - chunk))) o = failed(RC_STORAGE);
        else if (left == before) o = failed(RC_NOT_CONVERTED);
    }
    iconv_close(cd);
    return o;
}

EXPORT void MQXCNVC(MQHCONN hconn, MQLONG options, MQLONG source_ccsid, MQLONG source_length, PMQCHAR source, MQLONG target_ccsid,
                    MQLONG target_length, PMQCHAR target, PMQLONG data_length, PMQLONG cc, PMQLONG rc) {
    (void)hconn, (void)options;
    outcome o = source_length < 0 ? failed(RC_SOURCE_LENGTH) : target_length < 0 ? failed(RC_TARGET_LENGTH) : done;
    if (!is_failed(o) && source_length && !source) o = failed(RC_SOURCE_BUFFER);
    if (!is_failed(o) && target_length && !target) o = failed(RC_TARGET_BUFFER);
    if (!is_failed(o) && !data_length) o = failed(RC_DATA_LENGTH);
    if (is_failed(o)) return report(o, cc, rc);
    buffer converted = {0};
    o = convert_text(source_ccsid, (view){(unsigned char *)source, (size_t)source_length}, target_ccsid, &converted);
    if (!is_failed(o)) {
        *data_length = (MQLONG)converted.length;
        if (converted.length > (size_t)target_length) o = failed(RC_CONVERTED_TOO_BIG);
        else if (converted.length) memcpy(target, converted.data, converted.length);
    }
    buffer_free(&converted);
    report(is_failed(o) ? warning(o.rc) : o, cc, rc);
}
