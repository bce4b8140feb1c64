import ContainerStore
import SodiumPrimitives
import TestSupport

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The same raw key for every container of these tests: opening takes no password hash.
func testCredential(_ byte: UInt8 = 7) throws -> Credential {
  var secret = try SecretBytes(count: 32)
  _ = secret.withUnsafeMutableBytes { $0.initializeMemory(as: UInt8.self, repeating: byte) }
  return try .rawKey(secret)
}

func testOptions(_ durability: Container.Durability = .full) -> Container.Options {
  var options = Container.Options()
  options.durability = durability
  options.threadCount = 2
  options.passwordHash = PasswordHash.Parameters(passes: 1, memoryKiB: 8)
  return options
}

func readNative(_ path: String) -> [UInt8]? {
  guard let file = fopen(path, "r") else { return nil }
  defer { fclose(file) }
  fseek(file, 0, SEEK_END)
  let count = ftell(file)
  rewind(file)
  return [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
    initialized = fread(buffer.baseAddress, 1, count, file)
  }
}

func writeNative(_ path: String, _ bytes: [UInt8]) {
  let file = fopen(path, "w")!
  defer { fclose(file) }
  _ = bytes.withUnsafeBytes { fwrite($0.baseAddress, 1, $0.count, file) }
}

extension Container {
  func write(_ bytes: [UInt8], to path: String, permissions: UInt16 = 0o600) throws {
    try bytes.withUnsafeBytes { try write($0, to: path, permissions: permissions) }
  }
}

extension ContainerReading {
  /// Every path with its contents; nil for directories.
  func tree() throws -> [String: [UInt8]?] {
    var tree: [String: [UInt8]?] = [:]
    for file in try list("/", recursively: true) {
      let path = "/" + file.path
      tree.updateValue(file.attributes.kind == .file ? try contents(at: path) : nil, forKey: path)
    }
    return tree
  }
}

/// Bytes that differ from name to name and from place to place.
func testBytes(_ count: Int, seed: UInt64) -> [UInt8] {
  var random = SplitMix64(seed: seed)
  return [UInt8](unsafeUninitializedCapacity: count + 8) { buffer, initializedCount in
    let start = UnsafeMutableRawPointer(buffer.baseAddress!)
    for i in stride(from: 0, to: count, by: 8) {
      start.storeBytes(of: random.next(), toByteOffset: i, as: UInt64.self)
    }
    initializedCount = count
  }
}

/// Whether the two are the same. `==` takes a hundred times as long where nothing is optimized.
func areSame(_ one: [UInt8], _ other: [UInt8]) -> Bool {
  one.count == other.count && memcmp(one, other, one.count) == 0
}
