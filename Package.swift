// swift-tools-version: 6.2
import PackageDescription

// Layers, lowest first; the table of allowed imports is Tests/ArchitectureTests/LayerTests.swift.
let strict: [SwiftSetting] = [
  .swiftLanguageMode(.v6),
  .treatAllWarnings(as: .error),
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("InternalImportsByDefault"),
]
let strictC: [CSetting] = [.enableWarning("all"), .enableWarning("extra"), .treatAllWarnings(as: .error)]

// A package is neither fetched nor resolved for who enables no trait that needs it: each product of another package has its condition
// (Documentation/PACKAGE.md).
func external(_ name: String, _ package: String, _ traits: String...) -> Target.Dependency {
  .product(name: name, package: package, condition: .when(traits: Set(traits)))
}
let log = external("Logging", "swift-log", "Services")
let arguments = external("ArgumentParser", "swift-argument-parser", "Program")
let pushLog = external("Logging", "swift-log", "Push")
let pushCrypto = external("Crypto", "swift-crypto", "Push")
let pushDatabase = external("GRDB", "GRDB.swift", "Push")
let nio = ["NIOCore", "NIOPosix", "NIOHTTP1"].map { external($0, "swift-nio", "Push", "Launcher") }
let pushNIO =
  nio + [
    external("NIOWebSocket", "swift-nio", "Push"),
    external("NIOSSL", "swift-nio-ssl", "Push"),
  ]

let package = Package(
  name: "OpenDynamics",
  platforms: [.macOS(.v15), .iOS(.v18)],
  products: [
    .executable(name: "dynamics", targets: ["dynamics"]),
    .library(name: "SecureFiles", targets: ["SecureFiles"]),
    .library(name: "ContainerStore", targets: ["ContainerStore"]),
    .library(name: "EncryptedFile", targets: ["EncryptedFile"]),
    .library(name: "SodiumPrimitives", targets: ["SodiumPrimitives"]),
    .library(name: "ServiceValues", targets: ["ServiceValues"]),
    .library(name: "AppKinetics", targets: ["AppKinetics"]),
    .library(name: "AppRuntime", targets: ["AppRuntime"]),
    .library(name: "LauncherPage", targets: ["LauncherPage"]),
    .library(name: "BlackBerryDynamics", targets: ["BlackBerryDynamics", "GD", "GD_C"]),
    .library(name: "BlackBerryDynamicsTesting", targets: ["BlackBerryDynamicsTesting"]),
    .library(name: "ServiceBroker", targets: ["ServiceBroker"]),
    .library(name: "AppKineticsTesting", targets: ["AppKineticsTesting"]),
    .library(name: "PushClient", targets: ["PushClient"]),
    .library(name: "PushTesting", targets: ["PushTesting"]),
    .executable(name: "dynamics-push", targets: ["dynamics-push"]),
  ],
  traits: [
    .trait(
      name: "Services",
      description: "requests and files between apps, their broker, and the runtime around an app"),
    .trait(
      name: "Push", description: "messages from an app's server: the client, the relay, and dynamics-push"),
    .trait(
      name: "Launcher", description: "the launcher of an app in a browser", enabledTraits: ["Services"]),
    .trait(name: "Program", description: "the program dynamics", enabledTraits: ["Services", "Launcher"]),
    .trait(
      name: "GD", description: "the names of the BlackBerry Dynamics SDK, for apps that were written for it",
      enabledTraits: ["Services", "Push"]),
    .default(enabledTraits: ["Services", "Push", "Launcher", "Program", "GD"]),
  ],
  dependencies: [
    .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.0"),
    .package(url: "https://github.com/apple/swift-protobuf", from: "1.39.0", traits: []),
    .package(url: "https://github.com/apple/swift-log", from: "1.16.0"),
    .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
    // Push
    .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
    .package(url: "https://github.com/apple/swift-nio", from: "2.101.0"),
    .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.0"),
    .package(url: "https://github.com/apple/swift-nio-extras", from: "1.35.0"),
    .package(url: "https://github.com/apple/swift-system", from: "1.8.0"),
    .package(url: "https://github.com/apple/swift-crypto", from: "4.5.0"),
    .package(url: "https://github.com/apple/swift-certificates", from: "1.21.0"),
    .package(url: "https://github.com/apple/swift-asn1", from: "1.7.0"),
    .package(url: "https://github.com/apple/swift-metrics", from: "2.13.0"),
    .package(url: "https://github.com/apple/swift-http-types", from: "1.8.0"),
    .package(url: "https://github.com/apple/swift-configuration", from: "1.4.0"),
    .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
    .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.0", traits: []),
  ],
  targets: [
    // 0 system
    .systemLibrary(
      name: "CSodium", pkgConfig: "libsodium",
      providers: [.apt(["libsodium-dev"]), .brew(["libsodium"])]),
    .target(name: "CLibcrypto", cSettings: strictC),
    .target(name: "CPosix", cSettings: strictC),
    .target(name: "Locks", swiftSettings: strict),
    .target(name: "Identifiers", swiftSettings: strict),
    // 1 primitives
    .target(
      name: "SodiumPrimitives", dependencies: ["Locks", "Identifiers", "CSodium", "CLibcrypto"],
      swiftSettings: strict),
    .target(name: "UnixSockets", dependencies: ["CPosix"], swiftSettings: strict),
    .target(name: "ServiceValues", swiftSettings: strict),
    // 2 formats
    .target(name: "EncryptedFile", dependencies: ["Locks", "SodiumPrimitives"], swiftSettings: strict),
    .target(
      name: "ServiceWire",
      dependencies: [
        "SodiumPrimitives", "ServiceValues", external("SwiftProtobuf", "swift-protobuf", "Services"),
      ], exclude: ["Messages/service.proto"], swiftSettings: strict),
    // 3 stores
    .target(
      name: "ContainerStore", dependencies: ["Locks", "CPosix", "SodiumPrimitives", "EncryptedFile"],
      swiftSettings: strict),
    .target(
      name: "LocalTransport",
      dependencies: [
        "Locks", "SodiumPrimitives", "UnixSockets", "ServiceValues", "ServiceWire",
      ], swiftSettings: strict),
    // 4 products
    .target(
      name: "ServiceBroker",
      dependencies: [
        "Locks", "CPosix", "UnixSockets", "SodiumPrimitives", "ServiceValues", "ServiceWire",
        "LocalTransport",
        log,
        external("ServiceLifecycle", "swift-service-lifecycle", "Services"),
      ], swiftSettings: strict),
    .target(
      name: "SecureFiles", dependencies: ["Locks", "ContainerStore", "SodiumPrimitives"],
      swiftSettings: strict),
    // 6 services
    .target(
      name: "AppKinetics",
      dependencies: [
        "Locks", "CPosix", "UnixSockets", "SodiumPrimitives", "ServiceValues", "ServiceWire",
        "LocalTransport", "ContainerStore", "SecureFiles", log,
      ], swiftSettings: strict),
    // 7 the runtime around an app
    .target(
      name: "AppRuntime",
      dependencies: [
        "Locks", "CPosix", "SodiumPrimitives", "ServiceValues", "ContainerStore", "SecureFiles",
        "AppKinetics",
        log,
      ], swiftSettings: strict),
    // 8 libraries
    .target(
      name: "LauncherPage",
      dependencies: [
        "Locks", "Identifiers", "UnixSockets", "SodiumPrimitives", "SecureFiles", "AppKinetics", "AppRuntime",
        log,
      ] + nio,
      resources: ["html", "css", "js"].map { .embedInCode("Page/launcher.\($0)") }, swiftSettings: strict),
    .target(
      name: "AppKineticsTesting",
      dependencies: [
        "Locks", "SodiumPrimitives", "ServiceWire", "LocalTransport", "ServiceBroker", "ContainerStore",
        "SecureFiles", "AppKinetics", "AppRuntime", "TestSupport",
        log,
      ], swiftSettings: strict),
    // the names of the BlackBerry Dynamics SDK; a Swift module is the overlay of the C module of its name (Documentation/GD.md)
    .target(name: "CGD", cSettings: strictC),
    .target(name: "BlackBerryDynamicsModules", cSettings: strictC),
    .target(
      name: "BlackBerryDynamics",
      dependencies: [
        "CGD", "BlackBerryDynamicsModules", "Locks", "CPosix", "SodiumPrimitives", "SecureFiles",
        "AppKinetics", "AppRuntime", "PushClient", log,
      ], swiftSettings: strict),
    .target(
      name: "GD", dependencies: ["BlackBerryDynamics", "BlackBerryDynamicsModules"], swiftSettings: strict),
    .target(
      name: "GD_C", dependencies: ["BlackBerryDynamics", "BlackBerryDynamicsModules"], swiftSettings: strict),
    .target(
      name: "BlackBerryDynamicsTesting",
      dependencies: ["Locks", "BlackBerryDynamics", "AppKineticsTesting", "PushTesting"],
      swiftSettings: strict),
    // push: what an app and its server need, beside the rest
    .target(
      name: "PushWire", dependencies: ["Identifiers", external("SwiftProtobuf", "swift-protobuf", "Push")],
      exclude: ["push.proto"], swiftSettings: strict),
    .target(name: "PushChannels", dependencies: ["PushWire"], swiftSettings: strict),
    .target(
      name: "PushClient",
      dependencies: ["Locks", "PushChannels", "PushWire", pushDatabase, pushCrypto, pushLog] + pushNIO,
      swiftSettings: strict),
    .target(
      name: "PushRelay",
      dependencies: [
        "Locks", "PushWire", pushDatabase, pushCrypto, pushLog,
        external("X509", "swift-certificates", "Push"),
        external("SwiftASN1", "swift-asn1", "Push"),
        external("CoreMetrics", "swift-metrics", "Push"),
        external("HTTPTypes", "swift-http-types", "Push"),
        external("NIOHTTPTypes", "swift-nio-extras", "Push"),
        external("HummingbirdCore", "hummingbird", "Push"),
        external("HummingbirdTLS", "hummingbird", "Push"),
        external("ServiceLifecycle", "swift-service-lifecycle", "Push"),
        external("AsyncHTTPClient", "async-http-client", "Push"),
      ] + pushNIO, swiftSettings: strict),
    .target(
      name: "PushTesting", dependencies: ["Locks", "PushRelay", "PushWire", pushLog] + pushNIO,
      swiftSettings: strict),
    .target(
      name: "OpenDynamicsTesting", dependencies: ["Locks", "ContainerStore", "TestSupport"],
      swiftSettings: strict),
    .target(
      name: "Commands",
      dependencies: [
        "Locks", "CPosix", "UnixSockets", "SodiumPrimitives", "ServiceValues", "ServiceWire",
        "LocalTransport", "ServiceBroker", "ContainerStore", "SecureFiles", "AppKinetics", "AppRuntime",
        "LauncherPage", "Identifiers", arguments,
        log,
      ], swiftSettings: strict),
    // Examples, which tests run
    .executableTarget(
      name: "GreetingsService", dependencies: ["AppKinetics", "SecureFiles"],
      path: "Examples/GreetingsService", swiftSettings: strict),
    .executableTarget(
      name: "GreetingsClient", dependencies: ["AppKinetics", "SecureFiles"], path: "Examples/GreetingsClient",
      swiftSettings: strict),
    .executableTarget(
      name: "EditService", dependencies: ["AppKinetics", "SecureFiles"], path: "Examples/EditService",
      swiftSettings: strict),
    .executableTarget(
      name: "EditClient", dependencies: ["AppKinetics", "SecureFiles"], path: "Examples/EditClient",
      swiftSettings: strict),
    .target(
      name: "ExampleSupport", dependencies: ["AppKinetics"], path: "Examples/ExampleSupport",
      swiftSettings: strict),
    .executableTarget(
      name: "PhotoPicker", dependencies: ["ExampleSupport", "AppKinetics"],
      path: "Examples/PhotoPicker", swiftSettings: strict),
    .executableTarget(
      name: "PhotoClient", dependencies: ["ExampleSupport", "AppKinetics"],
      path: "Examples/PhotoClient", swiftSettings: strict),
    .executableTarget(
      name: "ApprovalService", dependencies: ["ExampleSupport", "AppKinetics"],
      path: "Examples/ApprovalService", swiftSettings: strict),
    .executableTarget(
      name: "ApprovalClient", dependencies: ["ExampleSupport", "AppKinetics"],
      path: "Examples/ApprovalClient", swiftSettings: strict),
    .executableTarget(
      name: "Diary", dependencies: ["ExampleSupport", "AppRuntime"], path: "Examples/Diary",
      swiftSettings: strict),
    // As it would be for the vendor's SDK, which is older than Swift 6.
    .executableTarget(
      name: "Jotter", dependencies: ["BlackBerryDynamics"], path: "Examples/Jotter",
      swiftSettings: [.swiftLanguageMode(.v5), .treatAllWarnings(as: .error)]),
    .executableTarget(
      name: "NewsApp", dependencies: ["PushClient"], path: "Examples/NewsApp", swiftSettings: strict),
    // 9 program
    .executableTarget(name: "dynamics", dependencies: ["Commands"], swiftSettings: strict),
    .executableTarget(
      name: "dynamics-push",
      dependencies: [
        "Locks", "Identifiers", "UnixSockets", "PushRelay", "PushClient", "PushWire", pushLog,
        external("SystemPackage", "swift-system", "Push"),
        external("ArgumentParser", "swift-argument-parser", "Push"),
        external("Configuration", "swift-configuration", "Push"),
        external("ServiceLifecycle", "swift-service-lifecycle", "Push"),
        external("AsyncHTTPClient", "async-http-client", "Push"),
      ] + pushNIO, swiftSettings: strict),

    // Benchmarks, in this package so that they measure the modules that were built for the program
    .executableTarget(
      name: "ladder",
      dependencies: [
        "SodiumPrimitives", "EncryptedFile", "ContainerStore", "SecureFiles",
        arguments,
      ], path: "Benchmarks/Sources/ladder", swiftSettings: strict),
    .executableTarget(
      name: "random-io",
      dependencies: [
        "SodiumPrimitives", "ContainerStore",
        arguments,
      ], path: "Benchmarks/Sources/random-io", swiftSettings: strict),
    .executableTarget(
      name: "services-benchmark",
      dependencies: [
        "CPosix", "Locks", "AppKinetics", "AppKineticsTesting", "ServiceBroker", "ContainerStore",
        "SecureFiles",
        "LocalTransport", "ServiceWire", "ServiceValues", "SodiumPrimitives", "UnixSockets",
        log,
      ], path: "Benchmarks/Sources/services", swiftSettings: strict),
    .executableTarget(
      name: "lane-benchmark", dependencies: ["Locks", "LocalTransport", "ServiceWire", "SodiumPrimitives"],
      path: "Benchmarks/Sources/lane", swiftSettings: strict),
    .executableTarget(
      name: "push-bench",
      dependencies: [
        "Locks", "PushClient", "PushWire", external("ArgumentParser", "swift-argument-parser", "Push"),
      ]
        + pushNIO, path: "Benchmarks/Sources/push", swiftSettings: strict),

    // Random numbers, directories and failures for the tests of every layer.
    .target(
      name: "TestSupport", dependencies: ["Locks"], path: "Tests/TestSupport", swiftSettings: strict),
    // Sees the system calls with which a task blocks its thread.
    .target(name: "CBlockingCalls", path: "Tests/CBlockingCalls", cSettings: strictC),
    .target(
      name: "BlockingCalls", dependencies: ["Locks", "CBlockingCalls"], path: "Tests/BlockingCalls",
      swiftSettings: strict),
    .testTarget(name: "ArchitectureTests", swiftSettings: strict),
    .testTarget(
      name: "SodiumPrimitivesTests", dependencies: ["SodiumPrimitives", "CSodium", "TestSupport"],
      swiftSettings: strict),
    .testTarget(
      name: "ServiceValuesTests", dependencies: ["ServiceValues", "TestSupport"], swiftSettings: strict),
    .testTarget(
      name: "ServiceWireTests",
      dependencies: [
        "ServiceWire", "SodiumPrimitives", "ServiceValues", "TestSupport",
        external("SwiftProtobuf", "swift-protobuf", "Services"),
      ], swiftSettings: strict),
    .testTarget(
      name: "UnixSocketsTests",
      dependencies: ["Locks", "UnixSockets", "SocketPeer", "CPosix", "TestSupport"],
      swiftSettings: strict),
    // The other side in tests of UnixSockets that need a second process.
    .executableTarget(
      name: "SocketPeer", dependencies: ["UnixSockets", "CPosix"], path: "Tests/SocketPeer",
      swiftSettings: strict),
    .testTarget(
      name: "LocalTransportTests",
      dependencies: [
        "Locks", "CPosix", "LocalTransport", "SodiumPrimitives", "UnixSockets", "ServiceWire",
        "OpenDynamicsTesting", "TestSupport",
      ], swiftSettings: strict),
    .testTarget(
      name: "EncryptedFileTests",
      dependencies: ["Locks", "EncryptedFile", "SodiumPrimitives", "CSodium", "TestSupport"],
      swiftSettings: strict),
    .testTarget(
      name: "ContainerStoreTests",
      dependencies: [
        "Locks", "ContainerStore", "EncryptedFile", "SodiumPrimitives", "OpenDynamicsTesting", "TestSupport",
        "CSodium",
      ],
      swiftSettings: strict),
    // The targets of Fuzzing/ with the inputs that are committed; their program is built by that package alone.
    .testTarget(
      name: "FuzzTests",
      dependencies: [
        "ContainerStore", "EncryptedFile", "SodiumPrimitives", "ServiceValues", "ServiceWire",
        "OpenDynamicsTesting", "TestSupport",
      ], path: "Fuzzing/Sources/fuzz", exclude: ["Program.swift"], swiftSettings: strict),
    .testTarget(
      name: "SecureFilesTests",
      dependencies: ["Locks", "SecureFiles", "SodiumPrimitives", "BlockingCalls", "TestSupport"],
      swiftSettings: strict),
    .testTarget(
      name: "AppKineticsTests",
      dependencies: [
        "Locks", "AppKinetics", "AppKineticsTesting", "ServiceBroker", "LocalTransport", "ServiceValues",
        "ServiceWire", "SecureFiles", "ContainerStore", "SodiumPrimitives", "UnixSockets", "TestSupport",
        "BlockingCalls",
        "OpenDynamicsTesting", "GreetingsService", "GreetingsClient", "EditService", "EditClient",
        "PhotoPicker", "PhotoClient", "ApprovalService", "ApprovalClient", "FrontApp",
        log,
      ],
      swiftSettings: strict),
    .testTarget(
      name: "AppRuntimeTests",
      dependencies: [
        "Locks", "AppRuntime", "AppKinetics", "AppKineticsTesting", "ContainerStore", "SecureFiles",
        "SodiumPrimitives", "ServiceValues", "ServiceWire", "LocalTransport", "OpenDynamicsTesting",
        "TestSupport", "Diary",
        log,
      ], swiftSettings: strict),
    .testTarget(
      name: "LauncherPageTests",
      dependencies: [
        "Locks", "LauncherPage", "AppRuntime", "AppKinetics", "AppKineticsTesting", "SecureFiles",
        "ServiceValues", "SodiumPrimitives", "TestSupport", "PageHost",
      ], swiftSettings: strict),
    .testTarget(
      name: "GDTests",
      dependencies: [
        "Locks", "BlackBerryDynamics", "BlackBerryDynamicsTesting", "GD", "GD_C", "AppRuntime", "AppKinetics",
        "PushTesting", "Jotter",
      ], swiftSettings: strict),
    // An app with a page, for Tests/Browser.
    .executableTarget(
      name: "PageHost",
      dependencies: [
        "Locks", "LauncherPage", "AppRuntime", "AppKinetics", "AppKineticsTesting", "SecureFiles",
      ],
      path: "Tests/PageHost", swiftSettings: strict),
    // An app in a process of its own, for tests of the front.
    .executableTarget(
      name: "FrontApp", dependencies: ["Locks", "AppKinetics", "SecureFiles"], path: "Tests/FrontApp",
      swiftSettings: strict),
    // An app in a process of its own, for Tests/Interoperability.
    .executableTarget(
      name: "ServiceApp", dependencies: ["AppKinetics", "SecureFiles"], path: "Tests/ServiceApp",
      swiftSettings: strict),
    .testTarget(
      name: "ServiceBrokerTests",
      dependencies: [
        "Locks", "ServiceBroker", "LocalTransport", "ServiceWire", "ServiceValues", "SodiumPrimitives",
        "UnixSockets", "TestSupport", log,
      ], swiftSettings: strict),
    .testTarget(name: "PushWireTests", dependencies: ["PushWire"], swiftSettings: strict),
    .testTarget(
      name: "PushChannelsTests", dependencies: ["PushChannels", "PushWire", "TestSupport"],
      swiftSettings: strict),
    .testTarget(
      name: "PushTests",
      dependencies: [
        "Locks", "PushClient", "PushChannels", "PushWire", "PushTesting", "TestSupport", pushDatabase,
        external("NIOEmbedded", "swift-nio", "Push"),
      ] + pushNIO, swiftSettings: strict),
    .testTarget(
      name: "PushRelayTests",
      dependencies: [
        "Locks", "PushRelay", "PushWire", "TestSupport", pushLog,
        external("CoreMetrics", "swift-metrics", "Push"),
      ] + pushNIO, swiftSettings: strict),
    .testTarget(
      name: "DocumentationTests",
      dependencies: [
        "SecureFiles", "AppKinetics", "AppKineticsTesting", "AppRuntime", "LauncherPage", "ServiceBroker",
        "PushClient",
        "PushTesting", "TestSupport", "BlackBerryDynamicsTesting",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "ConformanceTests",
      dependencies: ["Locks", "SecureFiles", "SodiumPrimitives", "TestSupport"], swiftSettings: strict),
    .testTarget(
      name: "CommandsTests",
      dependencies: [
        "Locks", "Commands", "dynamics", "AppKinetics", "SecureFiles", "ContainerStore",
        "SodiumPrimitives", "ServiceBroker", "ServiceValues", "ServiceWire", "LocalTransport", "UnixSockets",
        "TestSupport", log,
      ],
      swiftSettings: strict),
  ]
)

// For Fuzzing/, a package of its own; they have no public interface.
if Context.environment["OPENDYNAMICS_FUZZING"] != nil {
  package.products += ["ServiceWire", "OpenDynamicsTesting", "TestSupport"].map {
    .library(name: $0, targets: [$0])
  }
}

// Scripts/sanitize --short builds what it runs, and no more: instrumented code takes long to build.
if Context.environment["OPENDYNAMICS_SANITIZE"] == "short" {
  let concurrencySuites = [
    "SecureFilesTests": ["BlockingCallConcurrencyTests.swift"],
    "ContainerStoreTests": [
      "AppendConcurrencyTests.swift", "ConcurrencyTests.swift", "LockConcurrencyTests.swift",
      "ObservingConcurrencyTests.swift", "Fixtures.swift", "Support.swift", "TreeMirror.swift",
    ],
  ]
  var toVisit = ["AppKineticsTests", "AppRuntimeTests", "ServiceBrokerTests", "LocalTransportTests"]
  toVisit += concurrencySuites.keys
  var needed: Set<String> = []
  while let name = toVisit.popLast() {
    guard let target = package.targets.first(where: { $0.name == name }), target.type != .executable,
      needed.insert(name).inserted
    else { continue }
    for case .byNameItem(let name, _) in target.dependencies { toVisit.append(name) }
  }
  package.targets.removeAll { !needed.contains($0.name) }
  for target in package.targets {
    target.sources = concurrencySuites[target.name]
    target.dependencies.removeAll {
      if case .byNameItem(let name, _) = $0 { !needed.contains(name) } else { false }
    }
  }
  package.products = []
}
