// Finds who offers the service "greetings", asks each for a greeting, and prints it.
//
//   GreetingsClient DIR        DIR: its container, made when it is not there. The passphrase is in DYNAMICS_PASSPHRASE.
import AppKinetics
import Foundation

guard CommandLine.arguments.count == 2,
  let passphrase = ProcessInfo.processInfo.environment["DYNAMICS_PASSPHRASE"]
else {
  FileHandle.standardError.write(Data("usage: DYNAMICS_PASSPHRASE=… GreetingsClient DIR\n".utf8))
  exit(64)
}

do {
  let url = URL(fileURLWithPath: CommandLine.arguments[1])
  let secret = try SecretBytes(utf8: passphrase)
  let container =
    FileManager.default.fileExists(atPath: url.path)
    ? try SecureContainer.open(at: url, passphrase: secret)
    : try SecureContainer.create(at: url, passphrase: secret)
  let services = try AppServices(
    Application(id: ApplicationID("com.example.greetings.client"), name: "Greetings client"),
    container: container)
  try await services.start()

  let greetings = WellKnownService.greetings.definition
  let providers = try await services.providers(of: greetings.serviceID, version: greetings.version)
  if providers.isEmpty { print("nobody offers \(greetings.serviceID)") }
  for provider in providers {
    do {
      let reply = try await services.call(
        ServiceRequest(greetings, "greetMe|2"), to: provider.application)
      print("\(provider.name): \(reply?.params?.stringValue ?? "no greeting")")
    } catch {
      print("\(provider.name): \(error)")
    }
  }
  await services.stop()
  try container.close()
} catch {
  FileHandle.standardError.write(Data("GreetingsClient: \(error)\n".utf8))
  exit(1)
}
