/// One thing that reads bytes from a disk or from another process, and what has to be true of it whatever the bytes are.
struct Target: Sendable {
  let name: String
  /// Longer inputs teach nothing.
  let inputByteCountMax: Int
  /// Inputs made from real structures.
  let seeds: @Sendable () throws -> [Seed]
  /// Parses the input, and ends the process when a claim does not hold. Says whether everything in the input was accepted.
  let accepts: @Sendable ([UInt8]) throws -> Bool

  static let all: [Target] = [
    .superblockSlot, .keySlot, .superblockBody, .journalFrame, .journalHeader, .journalRecord, .table,
    .catalog, .deliveries, .segments, .paths, .container,
    .frames, .channel, .bulk, .values, .definitions, .registry,
  ]
}

struct Seed {
  var name: String
  var bytes: [UInt8]
  var isAccepted: Bool

  init(_ name: String, _ bytes: [UInt8], isAccepted: Bool = true) {
    self.name = name
    self.bytes = bytes
    self.isAccepted = isAccepted
  }
}

/// Ends the process, which libFuzzer reports with the input, when the claim does not hold.
func require(_ claim: Bool, _ otherwise: @autoclosure () -> String) {
  if !claim { fatalError(otherwise()) }
}
