/* Property values: their lengths, and the conversions of MQINQMP with MQIMPO_CONVERT_TYPE. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "mqm.h"

static const MQLONG integers = MQTYPE_INT8 | MQTYPE_INT16 | MQTYPE_INT32 | MQTYPE_INT64;
static const MQLONG floats = MQTYPE_FLOAT32 | MQTYPE_FLOAT64;

MQLONG type_length(MQLONG type) {
    switch (type) {
    case MQTYPE_NULL: return 0;
    case MQTYPE_BOOLEAN: return sizeof(MQBOOL);
    case MQTYPE_INT8: return 1;
    case MQTYPE_INT16: return 2;
    case MQTYPE_INT32: case MQTYPE_FLOAT32: return 4;
    case MQTYPE_INT64: case MQTYPE_FLOAT64: return 8;
    case MQTYPE_STRING: case MQTYPE_BYTE_STRING: return -1;
    default: return -2;
    }
}

static int64_t integer_of(const property *p) {
    int64_t value = 0;
    memcpy(&value, p->value, (size_t)p->length);
    int unused = 64 - 8 * (int)p->length;
    return (int64_t)((uint64_t)value << unused) >> unused;  /* extends the sign */
}

static double float_of(const property *p) {
    float single;
    double value;
    if (p->type == MQTYPE_FLOAT64) return memcpy(&value, p->value, sizeof value), value;
    return (double)(memcpy(&single, p->value, sizeof single), single);
}

static outcome integer_out(int64_t value, MQLONG type, buffer *out) {
    size_t length = (size_t)type_length(type);
    int unused = 64 - 8 * (int)length;
    if (((int64_t)((uint64_t)value << unused) >> unused) != value) return failed(RC_PROP_NUMBER_FORMAT);
    return buffer_add(out, &value, length) ? done : failed(RC_STORAGE);
}

static outcome float_out(double value, MQLONG type, buffer *out) {
    float single = (float)value;
    bool fits = type == MQTYPE_FLOAT64 ? buffer_add(out, &value, sizeof value) : buffer_add(out, &single, sizeof single);
    return fits ? done : failed(RC_STORAGE);
}

static outcome string_out(const property *p, buffer *out) {
    bool fits = true;
    if (p->type == MQTYPE_BOOLEAN) fits = buffer_text(out, integer_of(p) ? "TRUE" : "FALSE");
    else if (p->type & integers) fits = buffer_print(out, "%" PRId64, integer_of(p));
    else if (p->type == MQTYPE_FLOAT32) fits = buffer_print(out, "%.9g", float_of(p));
    else if (p->type == MQTYPE_FLOAT64) fits = buffer_print(out, "%.17g", float_of(p));
    else if (p->type == MQTYPE_BYTE_STRING)
        for (MQLONG i = 0; fits && i < p->length; i++) fits = buffer_print(out, "%02X", p->value[i]);
    else return failed(RC_PROP_CONV_NOT_SUPPORTED);
    return fits ? done : failed(RC_STORAGE);
}

static outcome string_in(const property *p, MQLONG type, buffer *out) {
    const char *text = (const char *)p->value;
    char *end;
    errno = 0;
    if (type == MQTYPE_BOOLEAN) {
        bool yes = !strcasecmp(text, "true") || !strcmp(text, "1"), no = !strcasecmp(text, "false") || !strcmp(text, "0");
        return yes || no ? (buffer_i4(out, yes) ? done : failed(RC_STORAGE)) : failed(RC_PROP_NUMBER_FORMAT);
    }
    if (type & floats) {
        double value = strtod(text, &end);
        return *text && !*end ? float_out(value, type, out) : failed(RC_PROP_NUMBER_FORMAT);
    }
    if (!(type & integers)) return failed(RC_PROP_CONV_NOT_SUPPORTED);
    int64_t value = strtoll(text, &end, 10);
    return *text && !*end && !errno ? integer_out(value, type, out) : failed(RC_PROP_NUMBER_FORMAT);
}

outcome value_convert(const property *from, MQLONG type, buffer *out) {
    if (type_length(type) == -2) return failed(RC_PROPERTY_TYPE);
    if (type == from->type) return buffer_add(out, from->value, (size_t)from->length) ? done : failed(RC_STORAGE);
    if (type == MQTYPE_STRING) return string_out(from, out);
    if (from->type == MQTYPE_STRING) return string_in(from, type, out);
    bool whole = from->type & (integers | MQTYPE_BOOLEAN);
    if (whole && (type & integers)) return integer_out(integer_of(from), type, out);
    if ((from->type & integers) && type == MQTYPE_BOOLEAN) return integer_out(integer_of(from) != 0, MQTYPE_INT32, out);
    if (from->type == MQTYPE_FLOAT32 && type == MQTYPE_FLOAT64) return float_out(float_of(from), type, out);
    return failed(RC_PROP_CONV_NOT_SUPPORTED);
}

/* ---- character sets and encodings -------------------------------------------------------------------------------------------- */

static MQLONG character_set(MQLONG ccsid, MQLONG encoding) {
    enum { UTF_8 = 1208, UTF_16 = 1200, UTF_16_BIG_ENDIAN = 1201 };
    if (ccsid == MQCCSI_DEFAULT || ccsid == MQCCSI_APPL) return UTF_8;
    bool big = (encoding & MQENC_INTEGER_MASK) == MQENC_INTEGER_NORMAL;
    return ccsid == UTF_16 && big ? UTF_16_BIG_ENDIAN : ccsid;
}

outcome text_recode(MQLONG from, view text, MQLONG to, MQLONG encoding, buffer *out) {
    from = character_set(from, encoding);
    to = character_set(to, encoding);
    if (from != to) return convert_text(from, text, to, out);
    return buffer_add(out, text.data, text.length) ? done : failed(RC_STORAGE);
}

void value_swap(MQLONG type, MQLONG encoding, unsigned char *value, size_t length) {
    bool number = type & (integers | MQTYPE_BOOLEAN), real = type & floats;
    bool swaps = (number && (encoding & MQENC_INTEGER_MASK) == MQENC_INTEGER_NORMAL) ||
                 (real && (encoding & MQENC_FLOAT_MASK) == MQENC_FLOAT_IEEE_NORMAL);
    for (size_t i = 0; swaps && i < length / 2; i++) {
        unsigned char kept = value[i];
        value[i] = value[length - 1 - i];
        value[length - 1 - i] = kept;
    }
}
