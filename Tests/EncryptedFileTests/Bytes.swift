import CSodium
import EncryptedFile
import Foundation
import SodiumPrimitives

/// What a test over many cases throws: one line that tells which case it was.
struct Mismatch: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}

/// Compares without a line of output for every byte.
func same(_ a: [UInt8], _ b: [UInt8]) -> Bool {
  a.count == b.count && (a.isEmpty || memcmp(a, b, a.count) == 0)
}

/// Bytes that follow from `seed` and look random.
func deterministicBytes(_ count: Int, seed: UInt64) -> [UInt8] {
  var seedBytes = [UInt8](repeating: 0, count: randombytes_seedbytes())
  withUnsafeBytes(of: seed.littleEndian) { seedBytes.replaceSubrange(0..<8, with: $0) }
  return [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
    if count > 0 { randombytes_buf_deterministic(buffer.baseAddress!, count, seedBytes) }
    initialized = count
  }
}

func sha256(_ bytes: [UInt8]) -> String {
  var digest = [UInt8](repeating: 0, count: crypto_hash_sha256_bytes())
  crypto_hash_sha256(&digest, bytes, UInt64(bytes.count))
  return hex(digest)
}

func hex(_ bytes: [UInt8]) -> String {
  var text = [CChar](repeating: 0, count: bytes.count * 2 + 1)
  sodium_bin2hex(&text, text.count, bytes, bytes.count)
  return text.withUnsafeBytes { String(decoding: $0.dropLast(), as: UTF8.self) }
}

func bytes(hex text: String) throws -> [UInt8] {
  var bytes = [UInt8](repeating: 0, count: text.utf8.count / 2)
  var count = 0
  guard sodium_hex2bin(&bytes, bytes.count, text, text.utf8.count, nil, &count, nil) == 0,
    count == bytes.count
  else { throw Mismatch("this is not hexadecimal: \(text.prefix(64))") }
  return bytes
}

extension SecretKey {
  init(bytes: [UInt8]) throws(CryptoError) {
    self = try bytes.span.withUnsafeBytes { bytes throws(CryptoError) in try SecretKey(copying: bytes) }
  }
}

extension FileKey {
  init(bytes: [UInt8]) throws(CryptoError) { self.init(try SecretKey(bytes: bytes)) }
}
