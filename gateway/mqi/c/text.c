/* Outcomes, growing buffers, blank-padded fields and variable-length strings. Independent of the calls. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "mqm.h"

void report(outcome o, PMQLONG cc, PMQLONG rc) {
    if (cc) *cc = o.cc;
    if (rc) *rc = o.rc;
}

bool buffer_reserve(buffer *b, size_t more) {
    if (b->capacity - b->length >= more) return true;
    size_t wanted = b->capacity ? b->capacity * 2 : 256;
    while (wanted - b->length < more) wanted *= 2;
    unsigned char *grown = realloc(b->data, wanted);
    if (!grown) return false;
    b->data = grown;
    b->capacity = wanted;
    return true;
}

bool buffer_add(buffer *b, const void *data, size_t length) {
    if (!buffer_reserve(b, length + 1)) return false;
    if (length) memcpy(b->data + b->length, data, length);
    b->length += length;
    b->data[b->length] = 0;  /* one byte beyond the contents, so that text in a buffer can be scanned as a C string */
    return true;
}

bool buffer_text(buffer *b, const char *text) { return buffer_add(b, text, strlen(text)); }

bool buffer_i4(buffer *b, MQLONG value) { return buffer_add(b, &value, sizeof value); }

bool buffer_print(buffer *b, const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return length >= 0 && (size_t)length < sizeof line && buffer_add(b, line, (size_t)length);
}

void buffer_free(buffer *b) {
    free(b->data);
    *b = (buffer){0};
}

size_t field_length(const void *field, size_t size) {
    const char *text = field;
    size_t length = strnlen(text, size);
    while (length && text[length - 1] == ' ') length--;
    return length;
}

view field_view(const void *field, size_t size) { return (view){field, field_length(field, size)}; }

void field_copy(void *to, const void *from, size_t size) {
    size_t length = strnlen(from, size);
    memmove(to, from, length);
    memset((char *)to + length, ' ', size - length);
}

void field_set(void *to, size_t size, view text) {
    size_t length = text.length < size ? text.length : size;
    if (length) memcpy(to, text.data, length);
    memset((char *)to + length, ' ', size - length);
}

bool field_is(const void *field, size_t size, const char *text) {
    size_t length = field_length(field, size);
    return length == strlen(text) && !memcmp(field, text, length);
}

view pointed(const void *base, const void *pointer, MQLONG offset, MQLONG length) {
    const unsigned char *start = pointer ? pointer : offset > 0 ? (const unsigned char *)base + offset : NULL;
    return (view){start, start && length > 0 ? (size_t)length : 0};
}

outcome charv_in(const MQCHARV *v, const void *base, MQLONG bad, view *out) {
    if (v->VSLength < MQVS_NULL_TERMINATED) return failed(bad);
    *out = (view){0};
    if (v->VSLength == 0) return done;
    view text = pointed(base, v->VSPtr, v->VSOffset, v->VSLength);
    if (!text.data) return v->VSLength == MQVS_NULL_TERMINATED ? done : failed(bad);
    if (v->VSLength == MQVS_NULL_TERMINATED) text.length = strlen((const char *)text.data);
    *out = text;
    return done;
}

/* A string returned to the caller, unless VSBufSize is 0; VSLength becomes the full length either way. */
outcome charv_out(MQCHARV *v, void *base, view text, MQLONG bad, MQLONG too_short) {
    if (v->VSBufSize < 0) return failed(bad);
    void *room = v->VSPtr ? v->VSPtr : v->VSOffset > 0 ? (unsigned char *)base + v->VSOffset : NULL;
    v->VSLength = (MQLONG)text.length;
    if (!room || !v->VSBufSize) return done;
    size_t fits = text.length < (size_t)v->VSBufSize ? text.length : (size_t)v->VSBufSize;
    if (fits) memcpy(room, text.data, fits);
    if (fits < (size_t)v->VSBufSize) ((char *)room)[fits] = 0;
    return fits < text.length ? warning(too_short) : done;
}
