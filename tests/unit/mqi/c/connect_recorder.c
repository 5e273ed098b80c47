/* Preloaded before the MQI library: writes down what a program hands to MQCONNX, a structure a line in hexadecimal, and lets the
   call go on. Strings that are pointed to follow as lines of their own. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmqc.h"
#include "cmqxc.h"

typedef void connect_function(PMQCHAR, PMQCNO, PMQHCONN, PMQLONG, PMQLONG);

static void line(FILE *to, const char *name, const void *data, size_t length) {
    fprintf(to, "%s ", name);
    for (size_t i = 0; i < length; i++) fprintf(to, "%02x", ((const unsigned char *)data)[i]);
    fputc('\n', to);
}

static const void *at(const void *base, const void *pointer, MQLONG offset) {
    return pointer ? pointer : offset > 0 ? (const char *)base + offset : NULL;
}

static void text(FILE *to, const char *name, const void *base, const void *pointer, MQLONG offset, MQLONG length) {
    const void *found = at(base, pointer, offset);
    if (found && length > 0) line(to, name, found, (size_t)length);
}

static void channel(FILE *to, const MQCD *cd) {
    static const size_t lengths[] = {0, 984, 1312, 1480, 1568, 1584, 1688, 1792, 1888, 1912, 1920, 1984, 1992, 2000};
    if (!cd || cd->Version < 1 || cd->Version > 13) return;
    line(to, "MQCD", cd, lengths[cd->Version]);
    if (cd->Version >= 7) text(to, "SSLPeerName", cd, cd->SSLPeerNamePtr, 0, cd->SSLPeerNameLength);
}

static void security(FILE *to, const MQCSP *csp) {
    if (!csp) return;
    line(to, "MQCSP", csp, csp->Version == 1 ? 56 : csp->Version == 2 ? 80 : 104);
    text(to, "CSPUserId", csp, csp->CSPUserIdPtr, csp->CSPUserIdOffset, csp->CSPUserIdLength);
    text(to, "CSPPassword", csp, csp->CSPPasswordPtr, csp->CSPPasswordOffset, csp->CSPPasswordLength);
    if (csp->Version >= 3) text(to, "Token", csp, csp->TokenPtr, csp->TokenOffset, csp->TokenLength);
}

static void tls(FILE *to, const MQSCO *sco) {
    static const size_t lengths[] = {0, 536, 544, 560, 568, 632, 648, 672};
    if (sco && sco->Version >= 1 && sco->Version <= 7) line(to, "MQSCO", sco, lengths[sco->Version]);
}

static void options(FILE *to, const MQCNO *cno) {
    static const size_t lengths[] = {0, 12, 24, 152, 168, 200, 224, 256, 272};
    if (!cno || cno->Version < 1 || cno->Version > 8) return;
    line(to, "MQCNO", cno, lengths[cno->Version]);
    if (cno->Version >= 2) channel(to, at(cno, cno->ClientConnPtr, cno->ClientConnOffset));
    if (cno->Version >= 4) tls(to, at(cno, cno->SSLConfigPtr, cno->SSLConfigOffset));
    if (cno->Version >= 5) security(to, at(cno, cno->SecurityParmsPtr, cno->SecurityParmsOffset));
    if (cno->Version >= 6) text(to, "CCDTUrl", cno, cno->CCDTUrlPtr, cno->CCDTUrlOffset, cno->CCDTUrlLength);
}

void MQCONNX(PMQCHAR name, PMQCNO cno, PMQHCONN hconn, PMQLONG cc, PMQLONG rc) {
    FILE *to = fopen(getenv("MQ_RECORD"), "w");
    if (to) {
        line(to, "QMgrName", name, strnlen(name, 48));
        options(to, cno);
        const char *table = getenv("MQCCDTURL");
        if (table) line(to, "MQCCDTURL", table, strlen(table));
        fclose(to);
    }
    void *library = dlopen("libmqm_r.so", RTLD_NOW);  /* the program has it in a scope of its own */
    ((connect_function *)dlsym(library, "MQCONNX"))(name, cno, hconn, cc, rc);
}
