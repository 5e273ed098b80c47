/* MQBUFMH and MQMHBUF: properties out of a buffer into a handle, and out of a handle into a buffer. */
#include "mqm.h"

static outcome buffer_to_handle(MQHMSG handle, const MQBMHO *options, MQMD *md, MQLONG length, unsigned char *data,
                                PMQLONG data_length) {
    property_list *list, parsed = {0};
    buffer kept = {0};
    size_t header = 0;
    MQMD follows;
    outcome o = handle_enter(handle, &list);
    if (is_failed(o)) return o;
    bool any = field_is(md->Format, sizeof md->Format, "MQHRF2");
    if (any) o = rfh2_parse((view){data, (size_t)length}, md->Encoding, &parsed, &header, &follows, &kept);
    if (is_failed(o)) {
        properties_clear(&parsed);
    } else {
        properties_clear(list);
        *list = parsed;
    }
    handle_leave();
    bool deletes = !is_failed(o) && any && options->Options & 1;  /* MQBMHO_DELETE_PROPERTIES, the default */
    if (deletes) {
        memmove(data + kept.length, data + header, (size_t)length - header);
        if (kept.length) memcpy(data, kept.data, kept.length);
        *data_length = length - (MQLONG)(header - kept.length);
    }
    bool left = kept.length;
    buffer_free(&kept);
    if (!deletes || left) return o;
    md->Encoding = follows.Encoding;
    md->CodedCharSetId = follows.CodedCharSetId;
    memcpy(md->Format, follows.Format, sizeof md->Format);
    return o;
}

EXPORT void MQBUFMH(MQHCONN hconn, MQHMSG handle, PMQVOID options, PMQVOID md, MQLONG length, PMQVOID data, PMQLONG data_length,
                    PMQLONG cc, PMQLONG rc) {
    (void)hconn;
    outcome o = check_structure(options, "BMHO", MQBMHO_CURRENT_VERSION, RC_BMHO);
    if (!is_failed(o)) o = check_structure(md, "MD  ", MQMD_CURRENT_VERSION, RC_MD);
    if (!is_failed(o) && length < 0) o = failed(RC_BUFFER_LENGTH);
    if (!is_failed(o) && length && !data) o = failed(RC_BUFFER_ERROR);
    if (!is_failed(o) && !data_length) o = failed(RC_DATA_LENGTH);
    if (!is_failed(o) && ((const MQBMHO *)options)->Options & ~1) o = failed(RC_OPTIONS);
    if (is_failed(o)) return report(o, cc, rc);
    *data_length = length;
    report(buffer_to_handle(handle, options, md, length, data, data_length), cc, rc);
}

static bool selected(const property *p, view pattern) {
    if (pattern.length == 1 && pattern.data[0] == '%') return true;
    size_t length = strlen(p->name);
    if (pattern.length && pattern.data[pattern.length - 1] == '%') {
        size_t prefix = pattern.length - 1;
        bool user = prefix == 4 && !memcmp(pattern.data, "usr.", 4);
        return user ? !strchr(p->name, '.') : length > prefix && !memcmp(p->name, pattern.data, prefix);
    }
    view wanted = property_name(pattern);
    return wanted.length == length && !memcmp(wanted.data, p->name, length);
}

/* The selected properties as a list of borrowed entries: freed without its contents. */
static outcome select_properties(const property_list *list, view pattern, property_list *out) {
    property_list all = {0};
    for (size_t i = 0; i < list->count; i++) {
        const property *p = &list->items[i];
        if (!selected(p, pattern)) continue;
        outcome o = properties_set(&all, p, (view){(unsigned char *)p->name, strlen(p->name)},
                                   (view){p->value, (size_t)p->length});
        if (is_failed(o)) return o;
    }
    *out = all;
    return all.count ? done : failed(RC_PROPERTY_NOT_AVAILABLE);
}

static outcome handle_to_buffer(MQHMSG handle, MQLONG options, view pattern, MQMD *md, size_t room, buffer *out) {
    property_list *list, chosen = {0};
    outcome o = handle_enter(handle, &list);
    if (is_failed(o)) return o;
    o = select_properties(list, pattern, &chosen);
    if (!is_failed(o)) o = rfh2_build(&chosen, md, out);
    if (!is_failed(o) && out->length > room) o = failed(RC_PROPERTY_VALUE_TOO_BIG);
    for (size_t i = list->count; !is_failed(o) && (options & 1) && i-- > 0;)  /* 1: MQMHBO_PROPERTIES_IN_MQRFH2 */
        if ((options & 2) && selected(&list->items[i], pattern)) properties_remove(list, i);
    properties_clear(&chosen);
    handle_leave();
    return o;
}

EXPORT void MQMHBUF(MQHCONN hconn, MQHMSG handle, PMQVOID options, PMQVOID name, PMQVOID descriptor, MQLONG size, PMQVOID room,
                    PMQLONG data_length, PMQLONG cc, PMQLONG rc) {
    (void)hconn;
    const MQMHBO *mhbo = options;
    MQMD *md = descriptor;
    view pattern = {0};
    buffer header = {0};
    outcome o = check_structure(mhbo, "MHBO", MQMHBO_CURRENT_VERSION, RC_MHBO);
    if (!is_failed(o)) o = check_structure(md, "MD  ", MQMD_CURRENT_VERSION, RC_MD);
    if (!is_failed(o)) o = name ? charv_in(name, name, RC_PROPERTY_NAME, &pattern) : failed(RC_PROPERTY_NAME);
    if (!is_failed(o) && (size < 0 || (size && !room))) o = failed(size < 0 ? RC_BUFFER_LENGTH : RC_BUFFER_ERROR);
    if (!is_failed(o) && !data_length) o = failed(RC_DATA_LENGTH);
    if (!is_failed(o) && mhbo->Options & ~3) o = failed(RC_OPTIONS);
    if (!is_failed(o)) {
        o = handle_to_buffer(handle, mhbo->Options, pattern, md, (size_t)size, &header);
        *data_length = (MQLONG)header.length;
    }
    if (!is_failed(o)) {
        memcpy(room, header.data, header.length);
        memcpy(md->Format, "MQHRF2  ", 8);
        md->Encoding = MQENC_NATIVE;
        md->CodedCharSetId = 1208;
    }
    buffer_free(&header);
    report(o, cc, rc);
}
