/* What a connection has open, and with which options: MQCB refuses a handle that messages cannot be consumed from. */
#include "mqm.h"

typedef struct open_handle {
    MQHOBJ hobj;
    MQLONG options;
} open_handle;

static open_handle *find(const connection *c, MQHOBJ hobj) {
    open_handle *all = (open_handle *)(void *)c->open_handles.data;
    for (size_t i = 0; i < c->open_handles.length / sizeof *all; i++)
        if (all[i].hobj == hobj) return &all[i];
    return NULL;
}

void open_handles_add(connection *c, MQHOBJ hobj, MQLONG options) {
    open_handle one = {hobj, options};
    if (find(c, hobj)) return;  /* MQSUB returns the handle that the program has given */
    (void)buffer_add(&c->open_handles, &one, sizeof one);  /* without storage MQCB says that it does not know the handle */
}

void open_handles_drop(connection *c, MQHOBJ hobj) {
    open_handle *one = find(c, hobj);
    if (!one) return;
    open_handle *last = (open_handle *)(void *)(c->open_handles.data + c->open_handles.length - sizeof *last);
    *one = *last;
    c->open_handles.length -= sizeof *last;
}

outcome open_handles_check(const connection *c, MQHOBJ hobj, bool browses) {
    static const MQLONG input = MQOO_INPUT_AS_Q_DEF | MQOO_INPUT_SHARED | MQOO_INPUT_EXCLUSIVE;
    const open_handle *one = find(c, hobj);
    if (!one) return failed(RC_HOBJ);
    if (browses) return one->options & MQOO_BROWSE ? done : failed(RC_NOT_OPEN_FOR_BROWSE);
    return one->options & input ? done : failed(RC_NOT_OPEN_FOR_INPUT);
}
