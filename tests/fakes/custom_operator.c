/* A library of one custom operator for ONNX Runtime: `winml.lite.test:TwicePlusOne`, y = 2 x + 1 on two floats.

   Only what it uses is declared: entries of the function table by their place in the public C header, and the members of
   OrtCustomOp up to the version it states. */

#include <stddef.h>
#include <stdint.h>

typedef void *Status;

typedef struct {
    const void *const *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
} ApiBase;

typedef Status (*CreateDomain)(const char *name, void **out);            /* 26 */
typedef Status (*AddToDomain)(void *domain, const void *operation);      /* 27 */
typedef Status (*AddDomain)(void *options, void *domain);                /* 28 */
typedef Status (*GetData)(void *value, void **out);                      /* 51 */
typedef Status (*GetInput)(const void *context, size_t index, const void **out);                           /* 90 */
typedef Status (*GetOutput)(void *context, size_t index, const int64_t *extents, size_t rank, void **out); /* 91 */

static const void *const *api;

static void *create_kernel(const void *operation, const void *table, const void *info) { return &api; }
static const char *name(const void *operation) { return "TwicePlusOne"; }
static const char *provider(const void *operation) { return NULL; }
static int float_type(const void *operation, size_t index) { return 1; }
static size_t one(const void *operation) { return 1; }
static int required(const void *operation, size_t index) { return 0; }
static void destroy(void *kernel) {}

static void compute(void *kernel, void *context) {
    const int64_t extents[] = {2};
    const void *input;
    void *output, *source, *target;
    ((GetInput)api[90])(context, 0, &input);
    ((GetOutput)api[91])(context, 0, extents, 1, &output);
    ((GetData)api[51])((void *)input, &source);
    ((GetData)api[51])(output, &target);
    for (int i = 0; i < 2; i++) ((float *)target)[i] = 2 * ((float *)source)[i] + 1;
}

static const struct {
    uint32_t version;
    void *members[32];
} operation = {
    8,
    {create_kernel, name, provider, float_type, one, float_type, one, compute, destroy, required, required},
};

Status RegisterCustomOps(void *options, const ApiBase *base) {
    static void *domain;
    Status status = NULL;
    api = base->get_api(22);
    if (!domain) {
        status = ((CreateDomain)api[26])("winml.lite.test", &domain);
        if (!status) status = ((AddToDomain)api[27])(domain, &operation);
    }
    return status ? status : ((AddDomain)api[28])(options, domain);
}
