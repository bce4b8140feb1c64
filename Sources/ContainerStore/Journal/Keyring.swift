import EncryptedFile
import Locks
import SodiumPrimitives

/// The keys of an opened container, by epoch and generation.
final class Keyring: Sendable {
  let container: Identifier
  private let epochs: [UInt32: SharedKey]
  private let generations: Guarded<[UInt64: SharedKey]>

  init(container: Identifier, body: SuperblockBody) throws {
    self.container = container
    epochs = Dictionary(body.epochs.map { ($0.number, $0.key) }) { $1 }
    generations = Guarded([:])
    for generation in body.generations { try add(generation) }
  }

  func add(_ generation: Generation) throws {
    guard let epoch = epochs[generation.epoch] else {
      throw ContainerError(.catalogDamaged, detail: "a generation of an epoch that is gone")
    }
    var data = ByteWriter()
    data.append(label("OD1-generation"))
    data.append(container)
    data.append(generation.number)
    data.append(generation.secret)
    let key = SharedKey(try epoch.key.derive(data.bytes))
    generations.withLock { $0[generation.number] = key }
  }

  func journalKey(_ id: Identifier, generation: UInt64) throws -> SecretKey {
    try generationKey(generation).key.derive(label("OD1-journal") + id.bytes)
  }

  func tableKey(_ id: Identifier, _ keying: Generation.Table.Keying) throws -> SharedKey {
    guard let epoch = epochs[keying.epoch] else {
      throw ContainerError(.catalogDamaged, detail: "a table of an epoch that is gone")
    }
    return SharedKey(
      try epoch.key.derive(label("OD1-table-key") + container.bytes + id.bytes + keying.secret))
  }

  private func generationKey(_ number: UInt64) throws -> SharedKey {
    guard let key = generations.withLock({ $0[number] }) else {
      throw ContainerError(.journalAltered, detail: "its generation \(number) is gone")
    }
    return key
  }

  func hasEpoch(_ number: UInt32) -> Bool { epochs[number] != nil }

  func fileKey(_ file: UInt64, epoch: UInt32, secret: [UInt8]) throws -> FileKey {
    guard let epochKey = epochs[epoch] else {
      throw ContainerError(.catalogDamaged, detail: "a file of an epoch that is gone")
    }
    var data = ByteWriter()
    data.append(label("OD1-file"))
    data.append(container)
    data.append(file)
    data.append(secret)
    return FileKey(try epochKey.key.derive(data.bytes))
  }
}
