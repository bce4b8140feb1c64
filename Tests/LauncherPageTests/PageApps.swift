import AppKineticsTesting
import Foundation
import LauncherPage
import SecureFiles

/// The page of an app, until `body` returns.
func pageOf(
  _ app: ManagedTestApp, in world: TestApps, _ change: (inout LauncherPage.Options) -> Void = { _ in },
  _ body: (PageBrowser) async throws -> Void
) async throws {
  var options = LauncherPage.Options()
  options.directory = world.directory.appending(path: "links")
  options.savesTo = world.directory
  change(&options)
  let page = try await LauncherPage(of: app.runtime, options: options)
  do {
    try await body(PageBrowser(page: page))
  } catch {
    await page.stop()
    throw error
  }
  await page.stop()
}

/// Sends files to an app that takes them, and returns when they are in its inbox.
func send(_ names: String..., to app: ManagedTestApp, from other: TestApp) async throws {
  for name in names { try other.container.files.write(Data("contents of \(name)".utf8), toPath: "/\(name)") }
  var request = ServiceRequest(WellKnownService.saveFiles.definition, "saveFiles")
  request.attachments = names.map { "/\($0)" }
  try await other.services.send(request, to: app.id).delivered()
}
