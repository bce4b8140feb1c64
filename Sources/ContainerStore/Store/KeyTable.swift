import EncryptedFile
import SodiumPrimitives

/// The key slots of a superblock and their labels, while keys are listed, tried or changed.
struct KeyTable: Equatable {
  let containerID: Identifier
  private(set) var slots: [KeySlot?]
  private(set) var labels: [[UInt8]]

  init(_ slot: SuperblockSlot, _ body: SuperblockBody) {
    containerID = slot.containerID
    slots = slot.keySlots
    labels = body.keyLabels
  }

  var keys: [ContainerKey] {
    zip(slots, labels).compactMap { slot, label in
      slot.map { ContainerKey($0, label: label.isEmpty ? nil : String(validating: label, as: UTF8.self)) }
    }
  }

  // MARK: Trying

  /// The places of the slots that the credential opens, of all slots or of that with the id. Throws `invalidArgument` for
  /// costs over those that the options allow, and for an id that no key has.
  func places(
    openedBy credential: borrowing Credential, id: Identifier? = nil, _ options: ContainerOptions
  ) throws -> [Int] {
    let named = try id.map { try place(of: $0) }
    let tried = slots.enumerated().map { named == nil || $0 == named ? $1 : nil }
    // The container may be open with a key, which computes nothing that slots ask for.
    if credential.kind == .passphrase {
      try KeySlot.checkCosts(of: tried, memoryKiBMax: options.passwordHashMemoryKiBMax)
    }
    var places: [Int] = []
    for (i, slot) in tried.enumerated() where try slot?.fits(credential, containerID: containerID) == true {
      places.append(i)
    }
    return places
  }

  // MARK: Changing

  /// Adds a slot for the credential, and returns its id. Throws `noFreeKeySlot`, and `invalidArgument` for an empty
  /// passphrase, impossible costs, a credential that opens one of them, and a label that is impossible or in use.
  @discardableResult
  mutating func add(
    _ credential: borrowing Credential, label: [UInt8], rootKey: borrowing SecretKey,
    _ options: ContainerOptions
  ) throws -> Identifier {
    guard slots.contains(where: { $0 == nil }) else { throw ContainerError(.noFreeKeySlot) }
    try requireFree(label)
    guard try places(openedBy: credential, options).isEmpty else {
      throw ContainerError(.invalidArgument, detail: "this key opens the container already")
    }
    return try insert(credential, label: label, rootKey: rootKey, options)
  }

  /// Into a slot that is empty, for a credential that opens none.
  private mutating func insert(
    _ credential: borrowing Credential, label: [UInt8], rootKey: borrowing SecretKey,
    _ options: ContainerOptions
  ) throws -> Identifier {
    let free = slots.firstIndex { $0 == nil }!
    let slot = try KeySlot.make(
      credential, parameters: options.passwordHash, rootKey: rootKey, containerID: containerID)
    (slots[free], labels[free]) = (slot, label)
    // With higher costs, these options could no longer open the container.
    try KeySlot.checkCosts(of: slots, memoryKiBMax: options.passwordHashMemoryKiBMax)
    return slot.id
  }

  /// Puts a slot for the new credential into the place of those that the old one opens, with the first one's label. Throws
  /// `wrongKey` when there are none, and as adding does. Returns the ids of both.
  mutating func replace(
    _ old: borrowing Credential, with new: borrowing Credential, rootKey: borrowing SecretKey,
    _ options: ContainerOptions
  ) throws -> (removed: [Identifier], added: Identifier) {
    let removed = try places(openedBy: old, options)
    guard !removed.isEmpty else { throw ContainerError(.wrongKey) }
    guard try places(openedBy: new, options).isEmpty else {
      throw ContainerError(.invalidArgument, detail: "the new key opens the container already")
    }
    let label = removed.map { labels[$0] }.first { !$0.isEmpty } ?? []
    let ids = removed.map { slots[$0]!.id }  // a place of a slot that opened
    empty(removed)
    return (ids, try insert(new, label: label, rootKey: rootKey, options))
  }

  /// Removes the slots that the credential opens, and returns their number. Throws `invalidArgument` when none would be left.
  mutating func remove(_ credential: borrowing Credential, _ options: ContainerOptions) throws -> Int {
    let removed = try places(openedBy: credential, options)
    empty(removed)
    try requireOne()
    return removed.count
  }

  /// Removes the slot of that id. Throws `invalidArgument` when there is none, and for the last one.
  mutating func remove(_ id: Identifier) throws {
    empty([try place(of: id)])
    try requireOne()
  }

  /// Throws `invalidArgument` when there is none, and for a label that is impossible or in use.
  mutating func setLabel(_ id: Identifier, _ label: String?) throws {
    let place = try place(of: id)
    let label = try Self.bytes(label)
    labels[place] = []
    try requireFree(label)
    labels[place] = label
  }

  private mutating func empty(_ places: [Int]) {
    for place in places {
      slots[place] = nil
      labels[place] = []
    }
  }

  private func place(of id: Identifier) throws(ContainerError) -> Int {
    guard let place = slots.firstIndex(where: { $0?.id == id }) else {
      throw ContainerError(.invalidArgument, detail: "no key of the container has the id \(id.hex)")
    }
    return place
  }

  private func requireOne() throws(ContainerError) {
    guard slots.contains(where: { $0 != nil }) else {
      throw ContainerError(.invalidArgument, detail: "this is the last key; add another first")
    }
  }

  /// Labels are compared byte by byte, as names are.
  private func requireFree(_ label: [UInt8]) throws(ContainerError) {
    guard !label.isEmpty, labels.contains(label) else { return }
    throw ContainerError(.invalidArgument, detail: "another key of the container has this label")
  }

  /// The stored form, empty without a label. Throws `invalidArgument` for one that no key can have.
  static func bytes(_ label: String?) throws(ContainerError) -> [UInt8] {
    guard let label else { return [] }
    let bytes = Array(label.utf8)
    guard (1...SuperblockBody.labelByteCountMax).contains(bytes.count) else {
      throw ContainerError(
        .invalidArgument,
        detail: "a key's label has 1 to \(SuperblockBody.labelByteCountMax) bytes, this one \(bytes.count)")
    }
    return bytes
  }
}
