import Foundation
import Testing

/// What the compiler does not check is allowed in few places, each with the invariant that stands in for the check.
struct UncheckedCodeTests {
  /// The table: a file, what it may contain, and why nothing checked would do.
  static let allowances: [Allowance] = [
    Allowance(
      "SodiumPrimitives/SecretBytes.swift", [.uncheckedSendable],
      "owns raw memory, which the compiler takes to be shared; the type cannot be copied"),
    Allowance(
      "SodiumPrimitives/SecretKey.swift", [.uncheckedSendable],
      "owns a slot of raw memory, which is written in the initialisers only; the type cannot be copied"),
    Allowance(
      "SodiumPrimitives/SecretKeyList.swift", [.uncheckedSendable],
      "owns raw memory, which is written in the initialiser only, and keeps free memory under a mutex; the type cannot be copied"
    ),
    Allowance(
      "SodiumPrimitives/KeyPool.swift", [.uncheckedSendable, .nonisolatedUnsafe],
      "its free list holds slots of raw memory under a mutex, and its gate an array of atomics, which Swift has no type for"
    ),
    Allowance(
      "EncryptedFile/WorkerThreads.swift", [.uncheckedSendable],
      "its threads sleep on a condition variable, which Synchronization's Mutex does not have"),
    Allowance(
      "Locks/Guarded.swift", [.uncheckedSendable],
      "a mutex whose closure may return values that are not `sending`, which Synchronization's Mutex refuses"),
    Allowance(
      "ContainerStore/Catalog/TableBlock.swift", [.uncheckedSendable],
      "memory that is written in the initialiser and wiped in the deinitialiser"),
    Allowance(
      "ContainerStore/OpenFile/DirtyGrain.swift", [.uncheckedSendable],
      "holds raw memory that is written under its node's lock and, once frozen, only read"),
    Allowance(
      "ContainerStore/OpenFile/UnitAhead.swift", [.uncheckedSendable],
      "raw memory that one thread fills and another reads after it has waited for it"),
    Allowance(
      "ContainerStore/OpenFile/OpeningAhead.swift", [.uncheckedSendable],
      "raw memory that a worker fills, and that is read once somebody has waited for the worker"),
    Allowance(
      "ContainerStore/Messages/ArrivingFrame.swift", [.uncheckedSendable],
      "a frame that one thread seals and stores, and another gets back after it has waited for that"
    ),
    Allowance(
      "LocalTransport/Bulk/BulkContents.swift", [.nonisolatedUnsafe],
      "memory that the receiving thread writes before it makes contents of it, and nobody afterwards"
    ),
    Allowance(
      "UnixSockets/SharedMemory.swift", [.nonisolatedUnsafe],
      "memory that another process reads whenever it likes; the one thread that writes it is its owner's affair"
    ),
    Allowance(
      "ServiceBroker/BrokerDriver.swift", [.uncheckedSendable],
      "what changes is touched on one queue, on which the threads that read wait for their turn"),
    Allowance(
      "AppKinetics/Runtime/Runtime.swift", [.nonisolatedUnsafe],
      "what one piece of work at a time changes; an actor would not do the work on the thread that brings it"
    ),
    Allowance(
      "SecureFiles/BlockingCall.swift", [.uncheckedSendable],
      "Foundation's Progress is thread-safe and not marked so on Linux"),
    Allowance(
      "SecureFiles/StreamEvents.swift", [.uncheckedSendable],
      "Foundation's timers take sendable blocks, and its streams are not sendable"),
    Allowance(
      "BlackBerryDynamics/Files/GDFileManager.swift", [.uncheckedSendable],
      "a class without state, whose superclass is open for the sake of a property"),
    Allowance(
      "BlackBerryDynamics/Runtime/GDServiceProvider.swift", [.uncheckedSendable],
      "constants, of which NSNumber is immutable and not marked so on Linux"),
    Allowance(
      "BlackBerryDynamics/Runtime/GDiOS+Entitlements.swift", [.uncheckedSendable],
      "the vendor's type of a closure, which is called once, on the queue of callbacks"),
    Allowance(
      "BlackBerryDynamics/AppKinetics/HostedApp+Front.swift", [.uncheckedSendable],
      "the vendor's type of a closure, which is called once"),
  ]

  enum Construct: String, CaseIterable, Sendable {
    case uncheckedSendable = "@unchecked Sendable"
    case nonisolatedUnsafe = "nonisolated(unsafe)"
    case forcedTry = "try!"

    func lines(in source: SwiftSource) -> [Int] {
      switch self {
      case .uncheckedSendable: source.lines(of: ["@", "unchecked", "Sendable"])
      case .nonisolatedUnsafe: source.lines(of: ["nonisolated", "(", "unsafe", ")"])
      case .forcedTry: source.lines(of: ["try", "!"], adjacent: true)
      }
    }
  }

  struct Allowance: Sendable {
    let file: String
    let constructs: Set<Construct>
    let reason: String

    init(_ file: String, _ constructs: Set<Construct>, _ reason: String) {
      self.file = file
      self.constructs = constructs
      self.reason = reason
    }
  }

  /// How far from the construct the word "invariant" may stand.
  static let invariantDistance = 3

  /// One sentence for each use in `text` that is not allowed or does not name its invariant, and for each allowance that
  /// is no longer used.
  static func violations(in text: String, file: String, allowances: [Allowance]) -> [String] {
    let source = SwiftSource(text)
    let allowed = allowances.filter { $0.file == file }.reduce(into: Set<Construct>()) {
      $0.formUnion($1.constructs)
    }
    return Construct.allCases.flatMap { construct -> [String] in
      let uses = construct.lines(in: source)
      if uses.isEmpty, allowed.contains(construct) {
        return [
          "Sources/\(file) has no \(construct.rawValue) any more: remove it from UncheckedCodeTests.allowances"
        ]
      }
      return uses.compactMap { line in
        if !allowed.contains(construct) {
          return """
            Sources/\(file):\(line) has \(construct.rawValue): use something that the compiler checks (a value, an actor, \
            a Guarded, a thrown error), or add the file and the reason to UncheckedCodeTests.allowances
            """
        }
        guard namesInvariant(source, near: line) else {
          return """
            Sources/\(file):\(line) has \(construct.rawValue) without its invariant: within \(invariantDistance) lines, \
            write a comment "Invariant: …" that says why this is safe
            """
        }
        return nil
      }
    }
  }

  private static func namesInvariant(_ source: SwiftSource, near line: Int) -> Bool {
    let near = max(1, line - invariantDistance)...min(source.lines.count, line + invariantDistance)
    return near.contains { number in
      let line = source.lines[number - 1]
      guard let comment = line.firstRange(of: "//") else { return false }
      return line[comment.upperBound...].lowercased().contains("invariant")
    }
  }

  // MARK: The sources

  @Test func uncheckedCodeIsInTheTableAndNamesItsInvariant() throws {
    let files = try SourceTree.targets().flatMap { try SourceTree.files(of: $0, extensions: ["swift"]) }
    #expect(!files.isEmpty)
    // What a generator wrote says in its own words why it is safe: copies of a message share its storage.
    for file in files where !file.hasSuffix(".pb.swift") {
      let text = try SourceTree.text(of: file)
      for violation in Self.violations(in: text, file: file, allowances: Self.allowances) {
        Issue.record(Comment(rawValue: violation))
      }
    }
  }

  @Test func everyFileOfTheTableExists() throws {
    for allowance in Self.allowances {
      let path = SourceTree.sources.appending(path: allowance.file).path
      #expect(
        FileManager.default.fileExists(atPath: path),
        "Sources/\(allowance.file) does not exist: remove it from UncheckedCodeTests.allowances")
      #expect(!allowance.reason.isEmpty && !allowance.constructs.isEmpty)
    }
  }

  // MARK: The test itself

  @Test(arguments: [
    ("final class A: @unchecked Sendable {}", Construct.uncheckedSendable),
    ("final class A: B, @unchecked\n  Sendable {}", .uncheckedSendable),
    ("extension A: @unchecked Sendable {}", .uncheckedSendable),
    ("nonisolated(unsafe) var a = 1", .nonisolatedUnsafe),
    ("private nonisolated (unsafe) static let a = 1", .nonisolatedUnsafe),
    ("let a = try! b()", .forcedTry),
    ("let a = \"\\(try! b())\"", .forcedTry),
  ])
  func findsEveryConstruct(text: String, construct: Construct) {
    let found = Construct.allCases.filter { !$0.lines(in: SwiftSource(text)).isEmpty }
    #expect(found == [construct])
    #expect(Self.violations(in: text, file: "A/A.swift", allowances: []).count == 1)
  }

  @Test(arguments: [
    "// @unchecked Sendable, try!", "let a = \"try!\"", "let a = try !done()", "let a = try? b()",
    "nonisolated var a: Int { 1 }", "struct A: Sendable {}",
  ])
  func findsNothingInHarmlessText(text: String) {
    #expect(Self.violations(in: text, file: "A/A.swift", allowances: []) == [])
  }

  @Test func asksForTheInvariantNearby() {
    let allowances = [Allowance("A/A.swift", [.forcedTry], "made up")]
    func violations(_ text: String) -> Int {
      Self.violations(in: text, file: "A/A.swift", allowances: allowances).count
    }
    #expect(violations("try! a()") == 1)
    #expect(violations("try! a()  // invariant: a never throws") == 0)
    #expect(violations("// Invariant: a never throws\n\n\ntry! a()") == 0)
    #expect(violations("try! a()\n\n\n/// The invariant: a never throws") == 0)
    #expect(violations("// Invariant: a never throws\n\n\n\ntry! a()") == 1)
    #expect(violations("let invariant = 1\ntry! a()") == 1)
  }

  @Test func reportsAnAllowanceThatIsNotUsed() {
    let allowances = [Allowance("A/A.swift", [.forcedTry], "made up")]
    #expect(Self.violations(in: "let a = 1", file: "A/A.swift", allowances: allowances).count == 1)
    #expect(Self.violations(in: "let a = 1", file: "A/B.swift", allowances: allowances).isEmpty)
  }
}
