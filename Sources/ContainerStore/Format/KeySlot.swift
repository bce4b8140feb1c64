import EncryptedFile
import SodiumPrimitives

/// One way to obtain the root key (CONTAINER-FORMAT.md, "Key slots").
struct KeySlot: Equatable {
  static let byteCount = 160
  private static let sealedKeyByteCount = 73

  enum Kind: UInt8 {
    case passphrase = 1
    case rawKey = 2
    case recoveryCode = 3
  }

  static let passesMax: UInt32 = 16
  static let memoryKiBMin: UInt32 = 8
  static let memoryKiBMax: UInt32 = 1024 * 1024

  let kind: Kind
  let parameters: PasswordHash.Parameters
  let salt: [UInt8]
  let sealedKey: [UInt8]
  let commitment: [UInt8]

  /// The salt, which no other slot has.
  var id: Identifier { Identifier(salt) }

  /// Bytes 0 … 31, to which the commitment and the sealed key are bound.
  private static func prefix(_ kind: Kind, _ parameters: PasswordHash.Parameters, _ salt: [UInt8]) -> [UInt8]
  {
    var writer = ByteWriter()
    writer.append(kind.rawValue)
    writer.appendZeros(3)
    writer.append(parameters.passes)
    writer.append(parameters.memoryKiB)
    writer.append(UInt32(0))
    writer.append(salt)
    return writer.bytes
  }

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(Self.prefix(kind, parameters, salt))
    writer.append(sealedKey)
    writer.append(commitment)
    writer.pad(to: Self.byteCount)
    return writer.bytes
  }

  private init(
    kind: Kind, parameters: PasswordHash.Parameters, salt: [UInt8], sealedKey: [UInt8], commitment: [UInt8]
  ) {
    self.kind = kind
    self.parameters = parameters
    self.salt = salt
    self.sealedKey = sealedKey
    self.commitment = commitment
  }

  private static func areWithinLimits(_ costs: PasswordHash.Parameters) -> Bool {
    (1...passesMax).contains(costs.passes) && (memoryKiBMin...memoryKiBMax).contains(costs.memoryKiB)
  }

  /// The maximum cost of all slots together, which equals the maximum of one slot.
  static let costMax = UInt64(passesMax) * UInt64(memoryKiBMax)

  /// The cost of trying all slots one after the other: the sum of passes times memory in KiB.
  static func cost(of slots: [KeySlot?]) -> UInt64 {
    slots.reduce(0) { $0 + ($1.map { UInt64($0.parameters.passes) * UInt64($0.parameters.memoryKiB) } ?? 0) }
  }

  /// Checks the cost of trying a passphrase on all slots before any hash is computed. No slot may
  /// require more memory than `memoryKiBMax`, and passes times memory of all slots together may not
  /// exceed the maximum of one slot. Throws `invalidArgument`.
  static func checkCosts(of slots: [KeySlot?], memoryKiBMax: UInt32) throws(ContainerError) {
    let costs = slots.compactMap { $0?.parameters }
    if let costly = costs.first(where: { $0.memoryKiB > memoryKiBMax }) {
      throw ContainerError(
        .invalidArgument,
        detail: "a key slot asks for \(costly.memoryKiB / 1024) MiB of memory for its password hash; "
          + "who trusts the container allows it in code (ContainerOptions.passwordHashMemoryKiBMax)")
    }
    let sum = cost(of: slots)
    guard sum <= UInt64(passesMax) * UInt64(memoryKiBMax) else {
      throw ContainerError(
        .invalidArgument,
        detail: "the password hashes of the key slots pass over \(sum / 1024) MiB together, more than "
          + "\(passesMax) passes over \(memoryKiBMax / 1024) MiB; who trusts the container allows it in code "
          + "(ContainerOptions.passwordHashMemoryKiBMax)")
    }
  }

  /// Decodes a slot; nil for an empty one. Costs are checked here, before any hash is computed.
  static func decode(_ bytes: [UInt8]) throws(MalformedBytes) -> KeySlot? {
    guard bytes.count == byteCount else { throw MalformedBytes(what: "a key slot of \(bytes.count) bytes") }
    var reader = ByteReader(bytes)
    guard bytes[0] != 0 else {
      try reader.zeros(byteCount)
      return nil
    }
    guard let kind = Kind(rawValue: try reader.read()) else {
      throw MalformedBytes(what: "an unknown kind of key slot")
    }
    try reader.zeros(3)
    let parameters = PasswordHash.Parameters(passes: try reader.read(), memoryKiB: try reader.read())
    try reader.zeros(4)
    switch kind {
    case .rawKey:
      guard parameters.passes == 0, parameters.memoryKiB == 0 else {
        throw MalformedBytes(what: "a raw key slot with password hash parameters")
      }
    case .passphrase, .recoveryCode:
      guard areWithinLimits(parameters) else {
        throw MalformedBytes(what: "password hash parameters outside their limits")
      }
    }
    let slot = KeySlot(
      kind: kind, parameters: parameters, salt: try reader.bytes(16),
      sealedKey: try reader.bytes(sealedKeyByteCount),
      commitment: try reader.bytes(32))
    try reader.zeros(reader.remaining)
    return slot
  }

  /// Throws `invalidArgument` for an empty passphrase and for costs that no reader accepts.
  static func check(_ credential: borrowing Credential, parameters: PasswordHash.Parameters)
    throws(ContainerError)
  {
    guard credential.kind == .passphrase else { return }
    guard credential.secret.count > 0 else {
      throw ContainerError(.invalidArgument, detail: "a passphrase has at least 1 byte")
    }
    guard areWithinLimits(parameters) else {
      throw ContainerError(
        .invalidArgument,
        detail: "a password hash takes 1 to \(passesMax) passes and \(memoryKiBMin) to \(memoryKiBMax) KiB")
    }
  }

  /// Makes a slot for the credential. Throws as ``check(_:parameters:)`` does.
  static func make(
    _ credential: borrowing Credential, parameters: PasswordHash.Parameters, rootKey: borrowing SecretKey,
    containerID: Identifier
  ) throws -> KeySlot {
    try check(credential, parameters: parameters)
    let salt = Random.bytes(PasswordHash.saltByteCount)
    let kind: Kind
    let costs: PasswordHash.Parameters
    switch credential.kind {
    case .passphrase:
      kind = .passphrase
      costs = parameters
    case .rawKey:
      kind = .rawKey
      costs = PasswordHash.Parameters(passes: 0, memoryKiB: 0)
    }
    let key = try slotKey(credential, parameters: costs, salt: salt, containerID: containerID)
    let bound = prefix(kind, costs, salt)
    let sealed = try rootKey.withUnsafeBytes { root throws(CryptoError) in
      var plaintext = [UInt8](root)
      defer { plaintext.withUnsafeMutableBytes { wipe($0) } }
      return try SealedMessage.seal(
        plaintext, key: wrapKey(key), ad: ad(containerID, bound), cipher: .once())
    }
    return KeySlot(
      kind: kind, parameters: costs, salt: salt, sealedKey: sealed,
      commitment: try commitment(key, containerID, bound))
  }

  /// Whether the credential belongs to this slot, at the cost of its password hash.
  func fits(_ credential: borrowing Credential, containerID: Identifier) throws -> Bool {
    try fittingKey(credential, containerID: containerID, .none) != nil
  }

  /// The root key, in that pool; nil when the credential does not belong to this slot. Throws `superblockAltered`
  /// when it does, but the sealed key does not open, and what the calls around the password hash throw.
  func open(
    _ credential: borrowing Credential, containerID: Identifier, in pool: KeyPool,
    _ hashing: HashObserver = .none
  ) throws -> SecretKey? {
    guard let key = try fittingKey(credential, containerID: containerID, hashing) else { return nil }
    do {
      // Not when the pool was shut during the hash.
      return try SecretKey(
        in: pool, else: { $0 as any Error },
        fill: { target in
          var root = try SealedMessage.open(
            sealedKey, key: Self.wrapKey(key), ad: Self.ad(containerID, bound), cipher: .once())
          defer { root.withUnsafeMutableBytes { wipe($0) } }
          target.copyBytes(from: root)
        })
    } catch CryptoError.notAuthentic {
      throw ContainerError(.superblockAltered, detail: "a key slot fits the key and does not open")
    }
  }

  private var bound: [UInt8] { Self.prefix(kind, parameters, salt) }

  /// The slot's key; nil when the credential does not belong to this slot.
  private func fittingKey(
    _ credential: borrowing Credential, containerID: Identifier, _ hashing: HashObserver
  ) throws -> SecretKey? {
    switch (credential.kind, kind) {
    case (.passphrase, .passphrase): try hashing.before(id)
    case (.rawKey, .rawKey): break
    default: return nil
    }
    let key = try Self.slotKey(credential, parameters: parameters, salt: salt, containerID: containerID)
    if kind == .passphrase { try hashing.after() }
    let expected = try Self.commitment(key, containerID, bound)
    let fits = expected.withUnsafeBytes { expected in
      commitment.withUnsafeBytes { KeyedHash.equal(expected, $0) }
    }
    guard fits else { return nil }
    return key
  }

  private static func slotKey(
    _ credential: borrowing Credential, parameters: PasswordHash.Parameters, salt: [UInt8],
    containerID: Identifier
  ) throws(CryptoError) -> SecretKey {
    switch credential.kind {
    case .passphrase:
      return try PasswordHash.key(passphrase: credential.secret, salt: salt, parameters: parameters)
    case .rawKey:
      return try credential.secret.derive(label("OD1-raw-slot") + containerID.bytes + salt)
    }
  }

  /// Space for an erase secret, without which no slot would open: zeros in this version.
  private static let eraseSecret = [UInt8](repeating: 0, count: 32)

  private static func wrapKey(_ key: borrowing SecretKey) throws(CryptoError) -> SecretKey {
    try key.derive(label("OD1-slot-wrap") + eraseSecret)
  }

  private static func commitment(
    _ key: borrowing SecretKey, _ containerID: Identifier, _ bound: [UInt8]
  ) throws(CryptoError) -> [UInt8] {
    try key.withUnsafeBytes {
      KeyedHash.compute(count: 32, key: $0, data: label("OD1-slot-commit") + containerID.bytes + bound)
    }
  }

  private static func ad(_ containerID: Identifier, _ bound: [UInt8]) -> [UInt8] {
    label("OD1-slot") + containerID.bytes + bound + [UInt8](repeating: 0, count: 16)
  }
}

/// What is called around each password hash of an opening; what it throws ends the opening.
struct HashObserver {
  /// With the id of the key that is tried.
  var before: (Identifier) throws -> Void
  var after: () throws -> Void

  static var none: HashObserver { HashObserver(before: { _ in }, after: {}) }
}
