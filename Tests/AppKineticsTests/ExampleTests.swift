import AppKinetics
import ContainerStore
import Foundation
import SecureFiles
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The programs of Examples/ that pass the front on, as processes of their own.
@Suite(.timeLimit(.minutes(5)))
struct ExampleTests {
  // MARK: Containers

  private func url(_ program: String, _ world: AppWorld) -> URL {
    world.directory.appendingPathComponent(program)
  }

  /// Makes the container of a program, with files in a folder. Its password hash costs nothing, since the programs open it again and again.
  private func makeContainer(
    of program: String, _ world: AppWorld, _ folder: String = "/", _ files: [String: String] = [:]
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
    of program: String, _ world: AppWorld, _ body: (SecureContainer) throws -> R
  ) throws -> R {
    let container = try SecureContainer.open(
      at: url(program, world), passphrase: SecretBytes(utf8: Program.passphrase))
    let result = Result { try body(container) }
    try container.close()
    return try result.get()
  }

  private func text(_ path: String, of program: String, _ world: AppWorld) throws -> String {
    try withContainer(of: program, world) { String(decoding: try $0.files.data(atPath: path), as: UTF8.self) }
  }

  private func expectClean(_ programs: String..., in world: AppWorld) throws {
    for program in programs {
      try withContainer(of: program, world) { container throws in
        #expect(try container.inboxMessages().isEmpty, "\(program)")
        #expect(try OutboxMessage.all(in: container).isEmpty, "\(program)")
        #expect(try container.store.queuedMessages().isEmpty, "\(program)")
        #expect(try container.store.answerableMessages().isEmpty, "\(program)")
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
    try await FrontWorld.with { front in
      let world = front.world
      try makeContainer(of: "PhotoPicker", world, "/Photos", ["cat.jpg": "a cat", "dog.jpg": "a dog"])
      try makeContainer(of: "PhotoClient", world)
      let picker = try Program("PhotoPicker", world, choice.arguments)
      #expect(await picker.line() == "ready")
      let client = try Program("PhotoClient", world)
      #expect(await client.line() == "ready")
      try await front.choose(Self.photoClient)
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
      #expect(front.fronts.values == [Self.photoClient, Self.photoPicker, Self.photoClient])
      for program in [picker, client] {
        program.signal(SIGTERM)
        #expect(await program.end() == 0)
      }
      try expectClean("PhotoPicker", "PhotoClient", in: world)
      if choice.isPhoto { #expect(try text("/Photos/dog.jpg", of: "PhotoClient", world) == "a dog") }
    }
  }
}
