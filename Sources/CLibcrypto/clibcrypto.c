#include "CLibcrypto.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// The few declarations of <openssl/evp.h> that are used: OpenSSL promises their binary interface within
// version 3, and without the header the package builds where only the run-time library is installed.
typedef struct evp_cipher_ctx_st EVP_CIPHER_CTX;
typedef struct evp_cipher_st EVP_CIPHER;
#define EVP_CTRL_AEAD_GET_TAG 0x10
#define EVP_CTRL_AEAD_SET_TAG 0x11

struct clibcrypto_context {
  EVP_CIPHER_CTX *sealing;
  EVP_CIPHER_CTX *opening;
};

static struct {
  int available;
  const char *(*version)(int);
  EVP_CIPHER_CTX *(*ctx_new)(void);
  void (*ctx_free)(EVP_CIPHER_CTX *);
  const EVP_CIPHER *(*chacha20_poly1305)(void);
  int (*init)(EVP_CIPHER_CTX *, const EVP_CIPHER *, void *, const uint8_t *, const uint8_t *, int);
  int (*update)(EVP_CIPHER_CTX *, uint8_t *, int *, const uint8_t *, int);
  int (*final)(EVP_CIPHER_CTX *, uint8_t *, int *);
  int (*ctrl)(EVP_CIPHER_CTX *, int, int, void *);
} lib;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void) {
  static const char *const names[] = {"libcrypto.so.3", "libcrypto.3.dylib"};
  void *handle = NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names && !handle; i++)
    handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!handle) return;
#define FIND(field, symbol) \
  if (!(*(void **)(&lib.field) = dlsym(handle, symbol))) return
  FIND(version, "OpenSSL_version");
  FIND(ctx_new, "EVP_CIPHER_CTX_new");
  FIND(ctx_free, "EVP_CIPHER_CTX_free");
  FIND(chacha20_poly1305, "EVP_chacha20_poly1305");
  FIND(init, "EVP_CipherInit_ex");
  FIND(update, "EVP_CipherUpdate");
  FIND(final, "EVP_CipherFinal_ex");
  FIND(ctrl, "EVP_CIPHER_CTX_ctrl");
#undef FIND
  lib.available = 1;
}

int clibcrypto_is_available(void) {
  pthread_once(&once, open_library);
  return lib.available;
}

const char *clibcrypto_version(void) {
  return clibcrypto_is_available() ? lib.version(0) : NULL;
}

clibcrypto_context *clibcrypto_context_create(void) {
  if (!clibcrypto_is_available()) return NULL;
  clibcrypto_context *context = calloc(1, sizeof *context);
  if (!context) return NULL;
  context->sealing = lib.ctx_new();
  context->opening = lib.ctx_new();
  const EVP_CIPHER *cipher = lib.chacha20_poly1305();
  // The cipher is set once; each message then changes only key and nonce.
  if (!context->sealing || !context->opening || !cipher ||
      lib.init(context->sealing, cipher, NULL, NULL, NULL, 1) != 1 ||
      lib.init(context->opening, cipher, NULL, NULL, NULL, 0) != 1) {
    clibcrypto_context_destroy(context);
    return NULL;
  }
  return context;
}

// A block under a key of zeros takes the place of key schedule, key stream and one-time key.
static void forget(EVP_CIPHER_CTX *context, int sealing) {
  static const uint8_t zeros[64];
  uint8_t out[64];
  int n;
  lib.init(context, NULL, NULL, zeros, zeros, sealing);
  lib.update(context, out, &n, zeros, 64);
}

void clibcrypto_context_forget(clibcrypto_context *context) {
  forget(context->sealing, 1);
  forget(context->opening, 0);
}

void clibcrypto_context_forget_opening(clibcrypto_context *context) { forget(context->opening, 0); }

void clibcrypto_context_destroy(clibcrypto_context *context) {
  if (!context) return;
  if (context->sealing) lib.ctx_free(context->sealing);  // EVP_CIPHER_CTX_free cleanses key material
  if (context->opening) lib.ctx_free(context->opening);
  free(context);
}

int clibcrypto_seal(clibcrypto_context *context, const uint8_t key[32], const uint8_t nonce[12],
                    const uint8_t *ad, size_t ad_count, const uint8_t block[64],
                    uint8_t block_out[64], const uint8_t *message, size_t message_count,
                    uint8_t *out, uint8_t tag_out[16]) {
  EVP_CIPHER_CTX *c = context->sealing;
  int n;
  if (ad_count > INT_MAX || message_count > INT_MAX) return 0;
  if (lib.init(c, NULL, NULL, key, nonce, 1) != 1) return 0;
  if (ad_count && lib.update(c, NULL, &n, ad, (int)ad_count) != 1) return 0;
  if (lib.update(c, block_out, &n, block, 64) != 1) return 0;
  if (message_count && lib.update(c, out, &n, message, (int)message_count) != 1) return 0;
  if (lib.final(c, tag_out, &n) != 1) return 0;
  return lib.ctrl(c, EVP_CTRL_AEAD_GET_TAG, 16, tag_out) == 1;
}

int clibcrypto_open(clibcrypto_context *context, const uint8_t key[32], const uint8_t nonce[12],
                    const uint8_t *ad, size_t ad_count, const uint8_t block[64],
                    const uint8_t *ciphertext, size_t ciphertext_count, uint8_t *out,
                    const uint8_t tag[16]) {
  EVP_CIPHER_CTX *c = context->opening;
  uint8_t scratch[64], expected[16];
  int n;
  if (ad_count > INT_MAX || ciphertext_count > INT_MAX) return -1;
  memcpy(expected, tag, 16);
  if (lib.init(c, NULL, NULL, key, nonce, 0) != 1) return -1;
  if (lib.ctrl(c, EVP_CTRL_AEAD_SET_TAG, 16, expected) != 1) return -1;
  if (ad_count && lib.update(c, NULL, &n, ad, (int)ad_count) != 1) return -1;
  if (lib.update(c, scratch, &n, block, 64) != 1) return -1;
  if (ciphertext_count && lib.update(c, out, &n, ciphertext, (int)ciphertext_count) != 1) return -1;
  return lib.final(c, scratch, &n) == 1 ? 1 : 0;
}
