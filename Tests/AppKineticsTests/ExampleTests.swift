import AppKinetics
import AppKineticsTesting
import ContainerStore
import Foundation
import SecureFiles
import TestSupport
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The programs of Examples/ that pass the front on, and those that end and start again, as processes of their own.
@Suite(.timeLimit(.minutes(5)))
struct ExampleTests {
  // MARK: Containers

  private func url(_ program: String, _ world: TestApps) -> URL {
    world.directory.appendingPathComponent(program)
  }

  /// Makes the container of a program, with files in a folder. Its password hash costs nothing, since the programs open it again and again.
  private func makeContainer(
    of program: String, _ world: TestApps, _ folder: String = "/", _ files: [String: String] = [:]
  ) throws {
    var options = Container.Options()
    options.passwordHash = PasswordHash.Parameters(passes: 1, memoryKiB: 8)
    let container = try SecureContainer.create(
      at: url(program, world), passphrase: SecretBytes(utf8: Program.passphrase), options: options)
    try container.files.createDirectory(atPath: folder, withIntermediateDirectories: true)
    for (name, text) in files { try container.files.write(Data(text.utf8), toPath: "\(folder)/\(name)") }
    try container.close()
  }

  /// Looks into the container of a program that has ended.
  private func withContainer<R>(
    of program: String, _ world: TestApps, _ body: (SecureContainer) throws -> R
  ) throws -> R {
    let container = try SecureContainer.open(
      at: url(program, world), passphrase: SecretBytes(utf8: Program.passphrase))
    let result = Result { try body(container) }
    try container.close()
    return try result.get()
  }

  private func text(_ path: String, of program: String, _ world: TestApps) throws -> String {
    try withContainer(of: program, world) { String(decoding: try $0.files.data(atPath: path), as: UTF8.self) }
  }

  private func hasQueuedMessages(_ program: String, _ world: TestApps) throws -> Bool {
    try withContainer(of: program, world) { try !$0.store.messageQueue().unhandled.isEmpty }
  }

  private func expectClean(_ programs: String..., in world: TestApps) throws {
    for program in programs {
      try withContainer(of: program, world) { container throws in
        #expect(try container.inboxMessages().isEmpty, "\(program)")
        #expect(try OutboxMessage.all(in: container).isEmpty, "\(program)")
        #expect(try container.store.messageQueue().unhandled.isEmpty, "\(program)")
        #expect(try container.store.messageQueue().answerable.isEmpty, "\(program)")
      }
    }
  }

  // MARK: Photos

  private static let photoClient = "com.example.photo.client"
  private static let photoPicker = "com.example.photo.picker"

  /// What the user does, and what the two programs say then.
  enum Choice: CaseIterable {
    case argument, typed, cancelled, wrong

    var arguments: [String] { self == .argument ? ["2"] : [] }

    var typedLine: String? {
      switch self {
      case .argument: nil
      case .typed: "2"
      case .cancelled: ""
      case .wrong: "3"
      }
    }

    var isPhoto: Bool { self == .argument || self == .typed }
  }

  @Test(arguments: Choice.allCases)
  func aPhotoIsChosenAndTheClientIsInFrontAgain(choice: Choice) async throws {
    try await withTestApps { world in
      try makeContainer(of: "PhotoPicker", world, "/Photos", ["cat.jpg": "a cat", "dog.jpg": "a dog"])
      try makeContainer(of: "PhotoClient", world)
      let picker = try Program("PhotoPicker", world, choice.arguments)
      #expect(await picker.line() == "ready")
      let client = try Program("PhotoClient", world)
      #expect(await client.line() == "ready")
      try await world.choose(Self.photoClient)
      #expect(await client.line() == "in front")
      #expect(await client.line() == "asks Photo picker for a photo")
      #expect(await picker.line() == "in front for \(Self.photoClient)")
      #expect(await picker.line() == "1 cat.jpg")
      #expect(await picker.line() == "2 dog.jpg")
      if let line = choice.typedLine { try picker.type(line) }
      #expect(await picker.line() == (choice.isPhoto ? "sent dog.jpg" : "cancelled"))

      // The photo and the front come on two ways.
      var lines: [String] = []
      for _ in 0..<3 { lines.append(try #require(await client.line())) }
      let (changes, others) = (lines.filter { $0.contains("front") }, lines.filter { !$0.contains("front") })
      #expect(changes == ["not in front", "in front"])
      #expect(others == [choice.isPhoto ? "has /Photos/dog.jpg" : "the user has cancelled"])
      #expect(world.frontIDs == [Self.photoClient, Self.photoPicker, Self.photoClient])
      for program in [picker, client] {
        program.signal(SIGTERM)
        #expect(await program.end() == 0)
      }
      try expectClean("PhotoPicker", "PhotoClient", in: world)
      if choice.isPhoto { #expect(try text("/Photos/dog.jpg", of: "PhotoClient", world) == "a dog") }
    }
  }

  // MARK: Approvals

  private static let approvalClient = "com.example.approval.client"

  /// How the client's process ends that has sent the document.
  enum ClientEnd: CaseIterable {
    /// It gets the reply.
    case never
    case terminated
    case killed
    /// The document may still be on its way.
    case killedWhenSent
  }

  private struct Sent {
    let id: String
    /// Nil when the client has ended.
    let client: Program?
  }

  /// Has a document sent and taken. The service has ended afterwards.
  private func send(_ world: TestApps, serviceIsKilled: Bool, client end: ClientEnd) async throws -> Sent {
    try makeContainer(of: "ApprovalClient", world, "/Texts", ["contract.txt": "a contract"])
    try makeContainer(of: "ApprovalService", world)
    let service = try Program("ApprovalService", world)
    #expect(await service.line() == "ready")
    var client = try Program("ApprovalClient", world, "/Texts/contract.txt")
    let id = try await client.line(beginning: "sent ")
    if end == .killedWhenSent {
      client.signal(SIGKILL)
      #expect(await client.end() == SIGKILL)
      client = try Program("ApprovalClient", world)
    }
    #expect(await service.line() == "took \(id) of \(Self.approvalClient)")
    if serviceIsKilled {
      service.signal(SIGKILL)
      // It may have been faster.
      #expect([0, SIGKILL].contains(await service.end()))
    } else {
      #expect(await service.end() == 0)
    }
    guard end == .terminated || end == .killed else { return Sent(id: id, client: client) }
    client.signal(end == .killed ? SIGKILL : SIGTERM)
    #expect(await client.end() == (end == .killed ? SIGKILL : 0))
    return Sent(id: id, client: nil)
  }

  /// Lets the client's last process end, and looks for what is left. It ends when the service, which runs, has what it sent.
  private func expectEnd(_ client: Program, _ service: Program, _ world: TestApps) async throws {
    #expect(await client.end() == 0)
    service.signal(SIGTERM)
    #expect(await service.end() == 0)
    try await settleReply(world)
    // A process that ends in the moment in which it has taken a reply is given that once more at its next start.
    for _ in 0..<10 where try hasQueuedMessages("ApprovalClient", world) {
      #expect(await (try Program("ApprovalClient", world)).end() == 0)
    }
    try expectClean("ApprovalClient", "ApprovalService", in: world)
  }

  /// The service may have ended before it heard that the client has the reply: then the next process hears of it.
  private func settleReply(_ world: TestApps) async throws {
    let outbox = try withContainer(of: "ApprovalService", world) { try OutboxMessage.all(in: $0) }
    if outbox.isEmpty { return }
    // A client that has nothing to wait for would end at once.
    try withContainer(of: "ApprovalClient", world) { try $0.files.write(Data(), toPath: "/Sent/other") }
    let (service, client) = (try Program("ApprovalService", world), try Program("ApprovalClient", world))
    _ = try await service.line(beginning: "\(Self.approvalClient) has the reply to ")
    for program in [service, client] {
      program.signal(SIGTERM)
      #expect(await program.end() == 0)
    }
    try withContainer(of: "ApprovalClient", world) { try $0.files.removeItem(atPath: "/Sent/other") }
  }

  @Test(arguments: [false, true], ClientEnd.allCases)
  func anApprovalComesWhateverEnds(serviceIsKilled: Bool, end: ClientEnd) async throws {
    try await withTestApps { world in
      let sent = try await send(world, serviceIsKilled: serviceIsKilled, client: end)
      let decision = try Program("ApprovalService", world, "approve", sent.id)
      #expect(try await decision.line(beginning: "waits: ") == "\(sent.id) of \(Self.approvalClient)")
      #expect(await decision.line() == "approved \(sent.id)")
      let client = try sent.client ?? Program("ApprovalClient", world)
      #expect(try await client.line(beginning: "approved ") == sent.id)
      #expect(await decision.line() == "\(Self.approvalClient) has the reply to \(sent.id)")
      #expect(await decision.end() == 0)
      let service = try Program("ApprovalService", world)
      #expect(await service.line() == "ready")
      try await expectEnd(client, service, world)
      #expect(try text("/Approvals/\(sent.id)", of: "ApprovalClient", world) == "approved\n")
      #expect(try text("/Documents/\(sent.id)", of: "ApprovalService", world) == "a contract")
    }
  }

  /// The reply is on the disk as soon as the service says so.
  @Test(arguments: [ClientEnd.never, .terminated])
  func aServiceIsKilledWhenItHasDecided(end: ClientEnd) async throws {
    try await withTestApps { world in
      let sent = try await send(world, serviceIsKilled: false, client: end)
      let decision = try Program("ApprovalService", world, "approve", sent.id)
      _ = try await decision.line(beginning: "approved ")
      decision.signal(SIGKILL)
      #expect([0, SIGKILL].contains(await decision.end()))
      let client = try sent.client ?? Program("ApprovalClient", world)
      let service = try Program("ApprovalService", world)
      #expect(await service.line() == "ready")
      #expect(try await client.line(beginning: "approved ") == sent.id)
      try await expectEnd(client, service, world)
      // The decision cannot be changed any more.
      let second = try Program("ApprovalService", world, "reject", sent.id)
      #expect(await second.line() == nil)
      #expect(await second.end() == 1)
      #expect(try text("/Approvals/\(sent.id)", of: "ApprovalClient", world) == "approved\n")
    }
  }

  /// What a client says that it has is there, and a later process has nothing more to wait for.
  @Test(arguments: [ClientEnd.never, .terminated])
  func aClientIsKilledWhenItHasTheApproval(end: ClientEnd) async throws {
    try await withTestApps { world in
      let sent = try await send(world, serviceIsKilled: false, client: end)
      let decision = try Program("ApprovalService", world, "approve", sent.id)
      let client = try sent.client ?? Program("ApprovalClient", world)
      #expect(try await client.line(beginning: "approved ") == sent.id)
      client.signal(SIGKILL)
      #expect([0, SIGKILL].contains(await client.end()))
      #expect(try text("/Approvals/\(sent.id)", of: "ApprovalClient", world) == "approved\n")
      decision.signal(SIGTERM)
      #expect(await decision.end() == 0)
      let next = try Program("ApprovalClient", world)
      let service = try Program("ApprovalService", world)
      #expect(await service.line() == "ready")
      try await expectEnd(next, service, world)
      #expect(try text("/Approvals/\(sent.id)", of: "ApprovalClient", world) == "approved\n")
    }
  }

  @Test(arguments: [ClientEnd.never, .terminated])
  func aDocumentIsRejected(end: ClientEnd) async throws {
    try await withTestApps { world in
      let sent = try await send(world, serviceIsKilled: false, client: end)
      let decision = try Program("ApprovalService", world, "reject", sent.id)
      _ = try await decision.line(beginning: "rejected ")
      let client = try sent.client ?? Program("ApprovalClient", world)
      #expect(try await client.line(beginning: "rejected ") == sent.id)
      #expect(await decision.end() == 0)
      let service = try Program("ApprovalService", world)
      #expect(await service.line() == "ready")
      try await expectEnd(client, service, world)
    }
  }
}
